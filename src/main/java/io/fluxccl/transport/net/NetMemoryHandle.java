package io.fluxccl.transport.net;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.MemoryHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Memory as this transport names it: an id that only the owner can resolve. On the wire,
 * little-endian: int32 magic "FXNM", int16 version (1), int16 1 where the owner's process can store
 * to it and 0 elsewhere, int64 id, int64 size.
 */
abstract class NetMemoryHandle implements MemoryHandle {
  static final int WIRE_LENGTH = 24;

  private static final int MAGIC = 0x4d4e5846;
  private static final short VERSION = 1;

  private final long id;
  private final long size;
  private final boolean onHost;

  NetMemoryHandle(long id, long size, boolean onHost) {
    this.id = id;
    this.size = size;
    this.onHost = onHost;
  }

  final long id() {
    return id;
  }

  final long size() {
    return size;
  }

  /** Whether the owner's process can store to it. */
  final boolean isOnHost() {
    return onHost;
  }

  /** Keeps the memory until {@link #endUse()}, unless it is closed: then false. */
  abstract boolean beginUse();

  abstract void endUse();

  @Override
  public final byte[] wire() {
    return ByteBuffer.allocate(WIRE_LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) (onHost ? 1 : 0))
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
  static RemoteMemory decode(byte[] wire, int rank, long size) {
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    if (wire.length != WIRE_LENGTH || in.getInt() != MAGIC || in.getShort() != VERSION) {
      throw malformed(rank, "header or length=" + wire.length);
    }
    int place = in.getShort();
    if (place != 0 && place != 1) {
      throw malformed(rank, "place=" + place);
    }
    long id = in.getLong();
    long ownSize = in.getLong();
    if (ownSize != size || ownSize < 1) {
      throw malformed(rank, "size=" + ownSize + ", its origin says " + size);
    }
    return new RemoteMemory(id, size, place == 1);
  }

  private static TransportFailure malformed(int rank, String field) {
    return new TransportFailure(
        rank, "the NET memory handle of rank " + rank + " is malformed: " + field);
  }
}
