// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * The description of one end that it sends to its peer: the network, the handles of its listeners,
 * and the token that a peer must present to connect. Little-endian:
 *
 * <pre>
 *   int32 magic "FXNE"   int16 version (3)   int16 length of the network's name
 *   int32 rank   int32 tag   int64 bytes of the longest message
 *   int16 rails, 0 to 8   int16 flags: 1 if messages are to have checksums
 *   32 bytes token   the name   128 bytes handle for control messages   128 bytes for each rail
 * </pre>
 *
 * @param network the plugin's name
 * @param rank the sender
 * @param tag the connection's tag
 * @param maxBytes the length in bytes of the longest message
 * @param checksums whether messages are to have checksums, in both directions
 * @param token a peer must present it to connect to this end
 * @param handles the listeners' handles: first for control messages, then for each rail
 */
record EndpointWire(
    String network,
    int rank,
    int tag,
    long maxBytes,
    boolean checksums,
    byte[] token,
    byte[][] handles) {
  static final int TOKEN_LENGTH = 32;
  static final int MAX_RAILS = 8;

  private static final int MAGIC = 0x454e5846;
  private static final short VERSION = 3;
  private static final short CHECKSUMS = 1;
  private static final int MAX_NAME = 256;

  /** Returns the number of rails; 0 if long writes are bodies of control messages. */
  int rails() {
    return handles.length - 1;
  }

  byte[] encode() {
    byte[] name = network.getBytes(StandardCharsets.UTF_8);
    ByteBuffer out =
        ByteBuffer.allocate(
                28 + TOKEN_LENGTH + name.length + handles.length * NetPlugin.HANDLE_BYTES)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt(MAGIC)
            .putShort(VERSION)
            .putShort((short) name.length)
            .putInt(rank)
            .putInt(tag)
            .putLong(maxBytes)
            .putShort((short) rails())
            .putShort(checksums ? CHECKSUMS : 0)
            .put(token)
            .put(name);
    for (byte[] handle : handles) {
      out.put(handle);
    }
    return out.array();
  }

  /**
   * Decodes a description that a peer sent, and validates every field except the handles. The
   * plugin must handle a wrong handle.
   *
   * @param wire the received bytes
   * @param fromRank the sender, for the error
   * @throws TransportFailure if it is malformed
   */
  static EndpointWire decode(byte[] wire, int fromRank) {
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    try {
      check(in.getInt() == MAGIC, "magic", fromRank);
      check(in.getShort() == VERSION, "version", fromRank);
      int nameLength = in.getShort();
      check(nameLength >= 0 && nameLength <= MAX_NAME, "name's length", fromRank);
      int rank = in.getInt();
      check(rank == fromRank, "rank", fromRank);
      int tag = in.getInt();
      long maxBytes = in.getLong();
      check(maxBytes > 0, "longest message", fromRank);
      int rails = in.getShort();
      check(rails >= 0 && rails <= MAX_RAILS, "rails", fromRank);
      int flags = in.getShort();
      check(flags == 0 || flags == CHECKSUMS, "flags", fromRank);
      byte[] token = new byte[TOKEN_LENGTH];
      in.get(token);
      byte[] name = new byte[nameLength];
      in.get(name);
      check(in.remaining() == (rails + 1) * NetPlugin.HANDLE_BYTES, "length", fromRank);
      byte[][] handles = new byte[rails + 1][NetPlugin.HANDLE_BYTES];
      for (byte[] handle : handles) {
        in.get(handle);
      }
      return new EndpointWire(
          new String(name, StandardCharsets.UTF_8),
          rank,
          tag,
          maxBytes,
          flags == CHECKSUMS,
          token,
          handles);
    } catch (BufferUnderflowException e) {
      throw malformed("length=" + wire.length, fromRank);
    }
  }

  private static void check(boolean condition, String field, int rank) {
    if (!condition) {
      throw malformed(field, rank);
    }
  }

  private static TransportFailure malformed(String field, int rank) {
    return new TransportFailure(
        rank, "the endpoint that rank " + rank + " sent is malformed at its " + field);
  }
}
