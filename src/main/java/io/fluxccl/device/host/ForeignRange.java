// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/** Memory of this process that other code has allocated and will free. Peers can't map it. */
final class ForeignRange extends HostRange {
  private final long address;

  /** The wrapped buffer, referenced to keep it from garbage collection; null for an address. */
  private final ByteBuffer bytes;

  private ForeignRange(long address, ByteBuffer bytes) {
    this.address = address;
    this.bytes = bytes;
  }

  /** Returns the range that {@link HostDevice#wrap(ByteBuffer)} describes. */
  static ForeignRange of(ByteBuffer buffer) {
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
    return new ForeignRange(BufferUtil.address(slice), slice);
  }

  /** Returns the range that {@link HostDevice#wrap(long, long)} describes. */
  static ForeignRange of(long address, long size) {
    if (address <= 0 || size < 1 || address + size < address) {
      throw InvalidUsage.of(
          "wrap of 0x%x, %d bytes; give an address of this process's memory and 1 byte or more",
          address, size);
    }
    return new ForeignRange(address, null);
  }

  @Override
  public long address() {
    return address;
  }

  @Override
  Optional<ByteBuffer> asByteBuffer(long offset, long size) {
    return Optional.ofNullable(bytes).map(all -> all.slice((int) offset, (int) size));
  }

  @Override
  void put(long offset, ByteBuffer source) {
    int length = source.remaining();
    new UnsafeBuffer(address + offset, length).putBytes(0, source, length);
  }

  @Override
  void get(long offset, ByteBuffer target) {
    int length = target.remaining();
    new UnsafeBuffer(address + offset, length).getBytes(0, target, length);
  }

  /** Does nothing, because the memory belongs to its owner. */
  @Override
  protected void lastUserLeft() {}

  @Override
  public String toString() {
    return Text.of("memory at 0x%x, which the host device did not allocate", address);
  }
}
