// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.CountedMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The handle of a memory, which belongs to a peer unless the handle is an {@link OwnedMemory}. It
 * carries an id that only the owner can resolve. On the wire, little-endian: int32 magic "FXNM",
 * int16 version (1), int16 place (of {@link Place}), int64 id, int64 size.
 */
class NetMemoryHandle extends CountedMemory {
  static final int WIRE_LENGTH = 24;

  private static final int MAGIC = 0x4d4e5846;
  private static final short VERSION = 1;
  private static final Place[] PLACES = Place.values();

  private final long id;
  private final long size;
  private final Place place;

  /** The way in which bytes reach a memory. */
  enum Place {
    /** The network and the owner's process store to it. */
    HOST,
    /** Only the network stores to it. */
    DEVICE,
    /** The owner's device copies to it from pinned memory, in parts that fit there. */
    STAGED
  }

  NetMemoryHandle(NetContext context, long id, long size, Place place) {
    super(context, encode(id, size, place), size);
    this.id = id;
    this.size = size;
    this.place = place;
  }

  final long id() {
    return id;
  }

  final long size() {
    return size;
  }

  /** Returns whether the owner's process can store to the memory. */
  final boolean isOnHost() {
    return place == Place.HOST;
  }

  /** Returns whether the memory is staged through pinned memory. */
  final boolean isStaged() {
    return place == Place.STAGED;
  }

  @Override
  public long address() {
    return 0;
  }

  @Override
  protected void lastUserLeft() {
    // This rank holds no resource of a peer's memory.
  }

  private static byte[] encode(long id, long size, Place place) {
    return ByteBuffer.allocate(WIRE_LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) place.ordinal())
        .putLong(id)
        .putLong(size)
        .array();
  }

  /**
   * Decodes the {@link #wire()} of a peer, and validates every field.
   *
   * @param wire the received bytes
   * @param rank the owner of the memory
   * @param size the length in bytes that the owner sent
   * @throws TransportFailure if it is malformed
   */
  static NetMemoryHandle decode(NetContext context, byte[] wire, int rank, long size) {
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    if (wire.length != WIRE_LENGTH || in.getInt() != MAGIC || in.getShort() != VERSION) {
      throw malformed(rank, "header or length=" + wire.length);
    }
    int place = in.getShort();
    if (place < 0 || place >= PLACES.length) {
      throw malformed(rank, "place=" + place);
    }
    long id = in.getLong();
    long ownSize = in.getLong();
    if (ownSize != size || ownSize < 1) {
      throw malformed(rank, "size=" + ownSize + ", its origin says " + size);
    }
    return new NetMemoryHandle(context, id, size, PLACES[place]);
  }

  private static TransportFailure malformed(int rank, String field) {
    return new TransportFailure(
        rank, "the memory handle of rank " + rank + " is malformed: " + field);
  }
}
