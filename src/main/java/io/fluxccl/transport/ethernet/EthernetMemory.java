package io.fluxccl.transport.ethernet;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.MemoryHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Memory as this transport names it: an id that only the owner can resolve. On the wire,
 * little-endian: int32 magic "FXEM", int16 version (1), int16 0, int64 id, int64 size.
 */
abstract class EthernetMemory implements MemoryHandle {
  static final int WIRE_LENGTH = 24;

  private static final int MAGIC = 0x4d455846;
  private static final short VERSION = 1;

  private final long id;
  private final long size;

  EthernetMemory(long id, long size) {
    this.id = id;
    this.size = size;
  }

  final long id() {
    return id;
  }

  final long size() {
    return size;
  }

  /** Whether it was closed here. */
  abstract boolean isClosed();

  @Override
  public final byte[] wire() {
    return ByteBuffer.allocate(WIRE_LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putLong(id)
        .putLong(size)
        .array();
  }

  /**
   * Reads a peer's {@link #wire()}.
   *
   * @param wire what arrived
   * @param rank whose memory it is
   * @param size how long the owner said it is
   * @throws TransportFailure if it is malformed
   */
  static Remote decode(byte[] wire, int rank, long size) {
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    if (wire.length != WIRE_LENGTH
        || in.getInt() != MAGIC
        || in.getShort() != VERSION
        || in.getShort() != 0) {
      throw malformed(rank, "header or length=" + wire.length);
    }
    long id = in.getLong();
    long ownSize = in.getLong();
    if (ownSize != size || ownSize < 1) {
      throw malformed(rank, "size=" + ownSize + ", its origin says " + size);
    }
    return new Remote(id, size);
  }

  private static TransportFailure malformed(int rank, String field) {
    return new TransportFailure(
        rank, "the ETHERNET memory handle of rank " + rank + " is malformed: " + field);
  }

  /** Memory of a peer. */
  static final class Remote extends EthernetMemory {
    private volatile boolean closed;

    Remote(long id, long size) {
      super(id, size);
    }

    @Override
    boolean isClosed() {
      return closed;
    }

    @Override
    public long address() {
      return 0;
    }

    @Override
    public void close() {
      closed = true;
    }
  }
}
