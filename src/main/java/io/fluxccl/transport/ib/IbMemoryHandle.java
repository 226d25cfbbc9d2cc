// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.CountedMemory;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * The handle of a memory for an RDMA device: this rank's memory, registered in pieces, or a peer's
 * memory, named by its remote keys. Closing the handle ends the registrations once no write uses
 * them.
 */
final class IbMemoryHandle extends CountedMemory {
  /** The length of a piece in bytes, a power of two: a registration is shorter than 2 GiB. */
  static final long PIECE = 1L << 30;

  private final IbContext context;
  private final Place place;
  private final boolean onHost;
  private final Verbs.Memory[] own;
  private final int[] localKeys;
  private final Runnable release;

  /**
   * The memory's place in its owner's process, as peers receive it. The owner's device rejects
   * writes to a wrong address or with a wrong key.
   *
   * <pre>
   *   header "FXIM" version 2   int64 address
   *   int64 bytes of a piece, all but the last; a power of two
   *   int32 number of pieces   int32 remote key of each
   * </pre>
   */
  record Place(long address, long piece, int[] keys) {
    /** Index of the first key in the encoded bytes. */
    static final int KEYS_INDEX = 26;

    private static final int MAGIC = 0x4d495846;
    private static final int VERSION = 2;

    byte[] encode() {
      WireWriter out = new WireWriter().header(MAGIC, VERSION);
      out.int64(address).int64(piece).int32(keys.length);
      Arrays.stream(keys).forEach(out::int32);
      return out.toBytes();
    }

    /**
     * Decodes a place that a peer sent, and validates every field.
     *
     * @param wire received bytes
     * @param size the length in bytes that the owner sent
     * @param fromRank the owner, for the error
     * @throws TransportFailure if it is malformed
     */
    static Place decode(byte[] wire, long size, int fromRank) {
      WireReader in = WireReader.ofPeer(wire, "RDMA memory", fromRank);
      in.header(MAGIC, VERSION);
      in.check(size > 0, "size", size + ", expected more than 0");
      long address = in.int64("address");
      long piece = in.int64("piece", 1, Integer.MAX_VALUE);
      in.check(Long.bitCount(piece) == 1, "piece", piece + ", expected a power of two");
      long expected = (size - 1) / piece + 1;
      int count = in.int32("pieces");
      in.check(count == expected, "pieces", count + ", expected " + expected);
      in.check(in.remaining() == 4L * count, "keys", in.remaining() + " bytes");
      int[] keys = IntStream.range(0, count).map(i -> in.int32("key")).toArray();
      return new Place(address, piece, keys);
    }
  }

  /**
   * Creates the handle of this rank's memory.
   *
   * @param own the registrations, in order
   * @param onHost whether this process can read the memory by its address
   * @param release called once, when the memory is deregistered
   */
  IbMemoryHandle(
      IbContext context,
      Place place,
      long size,
      Verbs.Memory[] own,
      boolean onHost,
      Runnable release) {
    super(context, place.encode(), size);
    this.context = context;
    this.place = place;
    this.own = own;
    this.onHost = onHost;
    this.release = release;
    this.localKeys = Arrays.stream(own).mapToInt(Verbs.Memory::localKey).toArray();
  }

  /** Creates the handle of a peer's memory. */
  IbMemoryHandle(IbContext context, Place place, long size) {
    this(context, place, size, new Verbs.Memory[0], false, () -> {});
  }

  /**
   * Returns the address of this rank's memory, or 0 for a peer's memory, which only writes can
   * access.
   */
  @Override
  public long address() {
    return isOwn() ? place.address() : 0;
  }

  boolean isOwn() {
    return own.length > 0;
  }

  boolean isOnHost() {
    return onHost;
  }

  /** Returns the address of the byte at an offset, in the owner's process. */
  long addressAt(long offset) {
    return place.address() + offset;
  }

  int localKeyAt(long offset) {
    return localKeys[(int) (offset / place.piece())];
  }

  int remoteKeyAt(long offset) {
    return place.keys()[(int) (offset / place.piece())];
  }

  /** Returns the number of bytes from an offset on that have the same key. */
  long untilNextKey(long offset) {
    return place.piece() - offset % place.piece();
  }

  /** Deregisters the memory at once, on any thread, because the port may be closed next. */
  @Override
  protected void lastUserLeft() {
    context.forget(this);
    try {
      Closing.all(own);
    } finally {
      release.run();
    }
  }
}
