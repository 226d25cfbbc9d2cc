// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import org.agrona.UnsafeApi;

/**
 * A byte buffer over memory at a given address, so that sockets and checksums use it in place. It
 * does not own the memory. One object is pointed at successive ranges; it is used by one thread at
 * a time.
 */
public final class RawView {
  /** The longest range in bytes: the most that one system call may move. */
  public static final int MAX_LENGTH = 1 << 30;

  private static final long ADDRESS_FIELD = UnsafeApi.objectFieldOffset(Buffer.class, "address");
  private static final long CAPACITY_FIELD = UnsafeApi.objectFieldOffset(Buffer.class, "capacity");

  private final ByteBuffer buffer = ByteBuffer.allocateDirect(1).duplicate();

  /** Creates a view of nothing. */
  public RawView() {
    UnsafeApi.putInt(buffer, CAPACITY_FIELD, MAX_LENGTH);
  }

  /** Returns the buffer, which is always the same object. */
  public ByteBuffer buffer() {
    return buffer;
  }

  /**
   * Points the buffer at a range.
   *
   * @param address the address of the range's first byte
   * @param length bytes of the range; bytes beyond {@link #MAX_LENGTH} are left out
   * @return the buffer, always the same object, with the whole range remaining
   */
  public ByteBuffer point(long address, long length) {
    UnsafeApi.putLong(buffer, ADDRESS_FIELD, address);
    buffer.clear().limit((int) Math.min(length, MAX_LENGTH));
    return buffer;
  }
}
