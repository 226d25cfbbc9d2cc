package io.fluxccl.transport.ethernet;

import io.fluxccl.TransportFailure;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What one end tells the other: where it listens, and the token that proves that a socket belongs
 * to it. Little-endian:
 *
 * <pre>
 *   int32 magic "FXEE"   int16 version (1)   int16 length of the address, 4 or 16
 *   the address   int32 port   32 bytes token
 * </pre>
 *
 * @param address where the end listens
 * @param token {@value #TOKEN_LENGTH} random bytes
 */
record EndpointWire(InetSocketAddress address, byte[] token) {
  static final int TOKEN_LENGTH = 32;

  private static final int MAGIC = 0x45455846;
  private static final short VERSION = 1;
  private static final int FIXED_LENGTH = 12 + TOKEN_LENGTH;

  byte[] encode() {
    byte[] ip = address.getAddress().getAddress();
    return ByteBuffer.allocate(FIXED_LENGTH + ip.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) ip.length)
        .put(ip)
        .putInt(address.getPort())
        .put(token)
        .array();
  }

  /**
   * Reads what a peer sent, trusting nothing.
   *
   * @param wire what arrived
   * @param rank who sent it, for the error
   * @throws TransportFailure if it is malformed
   */
  static EndpointWire decode(byte[] wire, int rank) {
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    check(wire.length > FIXED_LENGTH, "length", rank);
    check(in.getInt() == MAGIC, "magic", rank);
    check(in.getShort() == VERSION, "version", rank);
    int ipLength = in.getShort();
    check(ipLength == 4 || ipLength == 16, "address length", rank);
    check(wire.length == FIXED_LENGTH + ipLength, "length", rank);
    byte[] ip = new byte[ipLength];
    in.get(ip);
    int port = in.getInt();
    check(port > 0 && port <= 65535, "port", rank);
    byte[] token = new byte[TOKEN_LENGTH];
    in.get(token);
    try {
      InetAddress address = InetAddress.getByAddress(ip);
      // An IPv4 address in IPv6's clothes: no peer writes it that way.
      check(address.getAddress().length == ipLength, "address", rank);
      return new EndpointWire(new InetSocketAddress(address, port), token);
    } catch (UnknownHostException e) {
      throw malformed("address", rank);
    }
  }

  private static void check(boolean condition, String field, int rank) {
    if (!condition) {
      throw malformed(field, rank);
    }
  }

  private static TransportFailure malformed(String field, int rank) {
    return new TransportFailure(
        rank, "the ETHERNET endpoint that rank " + rank + " sent is malformed at its " + field);
  }
}
