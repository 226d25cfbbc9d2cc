// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.SmChannelDescriptor.PACKETS_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.PACKETS_SIZE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SEMAPHORE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SOURCE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SOURCE_SIZE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.TARGET_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.TARGET_SIZE_OFFSET;
import static org.agrona.BitUtil.CACHE_LINE_LENGTH;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteOrder;
import org.agrona.BufferUtil;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A channel on which the kernel's own threads read and write the peer's mapped memory. MSCCL++
 * calls it MemoryChannel since its version 0.7. It binds a semaphore, the peer's memory and local
 * memory, and optionally a buffer for low-latency packets. Immutable; owns none of them.
 *
 * @param semaphore the semaphore to the peer
 * @param target the peer's memory, mapped in this process: {@code put} and {@code putPackets} write
 *     it, and {@code get} reads it
 * @param source local memory
 * @param packets local memory in which the peer's packets arrive, or null for none
 */
public record SmChannel(
    SmDevice2DeviceSemaphore semaphore,
    RegisteredMemory target,
    DeviceBuffer source,
    DeviceBuffer packets)
    implements DeviceHandle {

  /** Checks that the target is mapped. */
  public SmChannel {
    target.address();
  }

  /** Creates a channel without packets. */
  public SmChannel(
      SmDevice2DeviceSemaphore semaphore, RegisteredMemory target, DeviceBuffer source) {
    this(semaphore, target, source, null);
  }

  @Override
  public int handleLength() {
    return SmChannelDescriptor.LENGTH;
  }

  /**
   * Writes the device handle, {@link SmChannelDescriptor#LENGTH} bytes.
   *
   * @param out the buffer to write to
   * @param offset the offset in the buffer
   * @throws IllegalStateException before the semaphore's {@code setup()} was called
   */
  @Override
  public void writeHandle(MutableDirectBuffer out, int offset) {
    semaphore.writeHandle(out, offset + SEMAPHORE_OFFSET);
    out.putLong(offset + TARGET_OFFSET, target.address(), ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + TARGET_SIZE_OFFSET, target.size(), ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + SOURCE_OFFSET, source.address(), ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + SOURCE_SIZE_OFFSET, source.size(), ByteOrder.LITTLE_ENDIAN);
    out.putLong(
        offset + PACKETS_OFFSET, packets == null ? 0 : packets.address(), ByteOrder.LITTLE_ENDIAN);
    out.putLong(
        offset + PACKETS_SIZE_OFFSET,
        packets == null ? 0 : packets.size(),
        ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns a handle for kernels of the host device, over memory of its own. */
  public SmChannelDeviceHandle deviceHandle() {
    UnsafeBuffer memory =
        new UnsafeBuffer(
            BufferUtil.allocateDirectAligned(SmChannelDescriptor.LENGTH, CACHE_LINE_LENGTH));
    writeHandle(memory, 0);
    return new SmChannelDeviceHandle(memory);
  }
}
