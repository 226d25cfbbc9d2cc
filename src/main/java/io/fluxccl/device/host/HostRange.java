// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.UseCount;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;
import org.agrona.BufferUtil;

/**
 * Memory that a {@link HostBuffer} is a part of: a {@link SharedSegment}, or memory of this process
 * that other code has allocated and will free. Peers can't map the latter. Counts its users, and
 * starts with one.
 */
@Experimental
public class HostRange extends UseCount {
  private final long address;

  /** The memory, referenced to keep it from garbage collection; null for an address. */
  private final ByteBuffer bytes;

  HostRange(long address, ByteBuffer bytes) {
    this.address = address;
    this.bytes = bytes;
  }

  /** Returns the range that {@link HostDevice#wrap(ByteBuffer)} describes. */
  static HostRange of(ByteBuffer buffer) {
    InvalidUsage.requireNonNull(buffer, "wrap", "buffer");
    if (!buffer.isDirect() || buffer.isReadOnly() || !buffer.hasRemaining()) {
      throw InvalidUsage.of(
          "wrap of %s; give a direct ByteBuffer (ByteBuffer.allocateDirect) that can be written and"
              + " has 1 byte or more remaining",
          buffer);
    }
    if (buffer.order() == ByteOrder.BIG_ENDIAN && buffer.remaining() > 1) {
      throw InvalidUsage.of(
          "wrap of %d bytes: the ByteBuffer is big-endian, which is Java's default, and device"
              + " memory is little-endian; set .order(ByteOrder.nativeOrder()) before you use its"
              + " values",
          buffer.remaining());
    }
    ByteBuffer slice = buffer.slice();
    return new HostRange(BufferUtil.address(slice), slice);
  }

  /** Returns the range that {@link HostDevice#wrap(long, long)} describes. */
  static HostRange of(long address, long size) {
    if (address <= 0 || size < 1 || address + size < address) {
      throw InvalidUsage.of(
          "wrap of 0x%x, %d bytes; give an address of this process's memory and 1 byte or more",
          address, size);
    }
    return new HostRange(address, null);
  }

  /** Returns the address of its first byte in this process. */
  public final long address() {
    return address;
  }

  /** Returns a view of a part; the caller holds a user for as long as it uses the view. */
  final Optional<ByteBuffer> asByteBuffer(long offset, long size) {
    return Optional.ofNullable(bytes)
        .map(all -> all.slice((int) offset, (int) size).order(ByteOrder.LITTLE_ENDIAN));
  }

  @Override
  public String toString() {
    return Text.of("memory at 0x%x, which the host device did not allocate", address);
  }
}
