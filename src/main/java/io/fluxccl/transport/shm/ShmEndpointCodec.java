package io.fluxccl.transport.shm;

import io.fluxccl.TransportFailure;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What one end of a connection tells the other. Little-endian:
 *
 * <pre>
 *   int32 magic "FXSE"   int16 version (1)   int16 zero
 *   int32 rank   int32 tag   int64 host hash   int64 process hash
 * </pre>
 */
final class ShmEndpointCodec {
  static final int LENGTH = 32;

  private static final int MAGIC = 0x45535846;
  private static final short VERSION = 1;

  private ShmEndpointCodec() {}

  /** One end of a connection. */
  record End(int rank, int tag, long hostHash, long processHash) {}

  static byte[] encode(End end) {
    return ByteBuffer.allocate(LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putInt(end.rank())
        .putInt(end.tag())
        .putLong(end.hostHash())
        .putLong(end.processHash())
        .array();
  }

  /**
   * Reads, trusting nothing.
   *
   * @param wire what arrived
   * @param fromRank who sent it, for the error
   * @throws TransportFailure if it is malformed
   */
  static End decode(byte[] wire, int fromRank) {
    check(wire.length == LENGTH, "length", wire.length, fromRank);
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic, fromRank);
    short version = in.getShort();
    check(version == VERSION, "version", version, fromRank);
    short padding = in.getShort();
    check(padding == 0, "padding", padding, fromRank);
    int rank = in.getInt();
    check(rank == fromRank, "rank", rank, fromRank);
    return new End(rank, in.getInt(), in.getLong(), in.getLong());
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the SHM endpoint that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
