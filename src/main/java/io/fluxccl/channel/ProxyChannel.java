// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.ProxyChannelDescriptor.FIFO_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.FLUSH_WORD_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SEMAPHORE_ID_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SEMAPHORE_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SOURCE_ID_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.TARGET_ID_OFFSET;
import static org.agrona.BitUtil.CACHE_LINE_LENGTH;

import io.fluxccl.device.DeviceHandle;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import java.nio.ByteOrder;
import org.agrona.BufferUtil;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A channel on which a kernel asks the host's proxy to move bytes. MSCCL++ calls it PortChannel
 * since its version 0.7. It binds a semaphore, the peer's memory and local memory of one {@link
 * ProxyService}, which creates it. Immutable; owns none of them.
 *
 * @param fifo the ring through which kernels ask the proxy
 * @param semaphore the semaphore that the peer signals; kernels wait on it, and only the proxy
 *     signals it
 * @param flushWord the address of the word in which the proxy acknowledges flushes
 * @param semaphoreId the id of the semaphore in the service
 * @param targetId the id of the peer's memory
 * @param sourceId the id of local memory
 */
public record ProxyChannel(
    FifoDeviceHandle fifo,
    Host2DeviceSemaphore semaphore,
    long flushWord,
    int semaphoreId,
    int targetId,
    int sourceId)
    implements DeviceHandle {

  @Override
  public int handleLength() {
    return ProxyChannelDescriptor.LENGTH;
  }

  /**
   * Writes the device handle, {@link ProxyChannelDescriptor#LENGTH} bytes.
   *
   * @param out the buffer to write to
   * @param offset the offset in the buffer
   */
  @Override
  public void writeHandle(MutableDirectBuffer out, int offset) {
    fifo.writeHandle(out, offset + FIFO_OFFSET);
    semaphore.writeHandle(out, offset + SEMAPHORE_OFFSET);
    out.putLong(offset + FLUSH_WORD_OFFSET, flushWord, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + SEMAPHORE_ID_OFFSET, semaphoreId, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + TARGET_ID_OFFSET, targetId, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + SOURCE_ID_OFFSET, sourceId, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + SOURCE_ID_OFFSET + Integer.BYTES, 0, ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns a handle for kernels of the host device, over memory of its own. */
  public ProxyChannelDeviceHandle deviceHandle() {
    UnsafeBuffer memory =
        new UnsafeBuffer(
            BufferUtil.allocateDirectAligned(ProxyChannelDescriptor.LENGTH, CACHE_LINE_LENGTH));
    writeHandle(memory, 0);
    return new ProxyChannelDeviceHandle(memory);
  }
}
