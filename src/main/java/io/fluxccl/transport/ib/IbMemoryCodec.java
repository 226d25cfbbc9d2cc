package io.fluxccl.transport.ib;

import io.fluxccl.TransportFailure;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What an owner tells its peers of one piece of memory. Little-endian:
 *
 * <pre>
 *   int32 magic "FXIM"   int16 version (1)   int16 zero
 *   int64 address   int64 bytes of a piece, all but the last; a power of two
 *   int32 number of pieces   int32 remote key of each
 * </pre>
 */
final class IbMemoryCodec {
  static final int HEADER_LENGTH = 28;

  private static final int MAGIC = 0x4d495846;
  private static final short VERSION = 1;

  private IbMemoryCodec() {}

  /** Where the memory is in its owner's process, and the keys of its pieces. */
  record Place(long address, long piece, int[] keys) {}

  static byte[] encode(Place place) {
    ByteBuffer out =
        ByteBuffer.allocate(HEADER_LENGTH + place.keys().length * Integer.BYTES)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt(MAGIC)
            .putShort(VERSION)
            .putShort((short) 0)
            .putLong(place.address())
            .putLong(place.piece())
            .putInt(place.keys().length);
    for (int key : place.keys()) {
      out.putInt(key);
    }
    return out.array();
  }

  /**
   * Reads, trusting nothing. What a wrong address or key leads to, the owner's device refuses.
   *
   * @param wire what arrived
   * @param size of the memory, as its owner said
   * @param fromRank who sent it, for the error
   * @throws TransportFailure if it is malformed
   */
  static Place decode(byte[] wire, long size, int fromRank) {
    check(wire.length >= HEADER_LENGTH, "length", wire.length, fromRank);
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic, fromRank);
    short version = in.getShort();
    check(version == VERSION, "version", version, fromRank);
    short padding = in.getShort();
    check(padding == 0, "padding", padding, fromRank);
    long address = in.getLong();
    long piece = in.getLong();
    check(
        piece > 0 && piece < Integer.MAX_VALUE && Long.bitCount(piece) == 1,
        "piece",
        piece,
        fromRank);
    int pieces = in.getInt();
    check(
        size > 0 && pieces == (size - 1) / piece + 1 && in.remaining() == (long) pieces * 4,
        "number of pieces",
        pieces,
        fromRank);
    int[] keys = new int[pieces];
    for (int i = 0; i < pieces; i++) {
      keys[i] = in.getInt();
    }
    return new Place(address, piece, keys);
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the RDMA memory that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
