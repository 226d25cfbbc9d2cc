// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.transport.CountedMemory;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;

/**
 * The handle of a memory, which belongs to a peer unless the handle is an {@link OwnedMemory}. It
 * carries an id that only the owner can resolve.
 */
public class NetMemoryHandle extends CountedMemory {
  private static final int MAGIC = 0x4d4e5846;
  private static final int VERSION = 1;
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

  /** Returns the id by which the owner finds the memory. */
  public final long id() {
    return id;
  }

  /** Returns the length of the memory in bytes. */
  public final long size() {
    return size;
  }

  /** Returns whether the owner's process can store to the memory. */
  public final boolean isOnHost() {
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
    return new WireWriter()
        .header(MAGIC, VERSION)
        .uint16(place.ordinal())
        .int64(id)
        .int64(size)
        .toBytes();
  }

  /**
   * Decodes the {@link #wire()} of a peer, and validates every field.
   *
   * @param wire the received bytes
   * @param rank the owner of the memory
   * @param size the length in bytes that the owner sent, 1 or more
   * @throws io.fluxccl.TransportFailure if it is malformed
   */
  static NetMemoryHandle decode(NetContext context, byte[] wire, int rank, long size) {
    WireReader in = WireReader.ofPeer(wire, "memory handle", rank).header(MAGIC, VERSION);
    int place = in.uint16("place");
    in.check(place < PLACES.length, "place", "" + place);
    long id = in.int64("id");
    in.int64("size", Math.max(1, size), size);
    in.end();
    return new NetMemoryHandle(context, id, size, PLACES[place]);
  }
}
