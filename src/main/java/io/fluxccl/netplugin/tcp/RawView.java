package io.fluxccl.netplugin.tcp;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import org.agrona.UnsafeApi;

/**
 * A byte buffer over memory that is given by its address, so that sockets read and write it in
 * place. Does not own the memory. Made once, pointed at one range after the other; one thread at a
 * time.
 */
final class RawView {
  /** The longest range: what one system call may move. */
  static final int MAX_LENGTH = 1 << 30;

  private static final long ADDRESS_FIELD = UnsafeApi.objectFieldOffset(Buffer.class, "address");
  private static final long CAPACITY_FIELD = UnsafeApi.objectFieldOffset(Buffer.class, "capacity");

  private final ByteBuffer buffer = ByteBuffer.allocateDirect(1).duplicate();

  RawView() {
    UnsafeApi.putInt(buffer, CAPACITY_FIELD, MAX_LENGTH);
  }

  /** The buffer, the same always. */
  ByteBuffer buffer() {
    return buffer;
  }

  /**
   * Points it at a range.
   *
   * @param address of its first byte
   * @param length bytes; what is over {@link #MAX_LENGTH} is left out
   * @return the buffer, all of it remaining; the same always
   */
  ByteBuffer point(long address, long length) {
    UnsafeApi.putLong(buffer, ADDRESS_FIELD, address);
    buffer.clear().limit((int) Math.min(length, MAX_LENGTH));
    return buffer;
  }
}
