package io.fluxccl.transport.ib;

import io.fluxccl.TransportFailure;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What one end of a connection tells the other: where it listens, and the token by which it knows
 * who may connect. Little-endian:
 *
 * <pre>
 *   int32 magic "FXIE"   int16 version (3)   int16 zero
 *   int32 rank   int32 tag   4 bytes IPv4 address   int32 port   32 bytes token
 * </pre>
 */
final class IbEndpointCodec {
  static final int TOKEN_LENGTH = 32;
  static final int TOKEN_INDEX = 24;
  static final int LENGTH = TOKEN_INDEX + TOKEN_LENGTH;

  private static final int MAGIC = 0x45495846;
  private static final short VERSION = 3;

  private IbEndpointCodec() {}

  /** One end of a connection. */
  record End(int rank, int tag, InetSocketAddress address, byte[] token) {}

  static byte[] encode(End end) {
    return ByteBuffer.allocate(LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putInt(end.rank())
        .putInt(end.tag())
        .put(end.address().getAddress().getAddress())
        .putInt(end.address().getPort())
        .put(end.token())
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
    int tag = in.getInt();
    byte[] ip = new byte[4];
    in.get(ip);
    int port = in.getInt();
    check(port > 0 && port <= 65535, "port", port, fromRank);
    byte[] token = new byte[TOKEN_LENGTH];
    in.get(token);
    try {
      return new End(rank, tag, new InetSocketAddress(InetAddress.getByAddress(ip), port), token);
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e); // four bytes are always an address
    }
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the RDMA endpoint that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
