package io.fluxccl.transport.ethernet;

import java.nio.ByteOrder;
import org.agrona.DirectBuffer;
import org.agrona.MutableDirectBuffer;

/**
 * The first bytes on a socket. The connecting side sends a hello and waits; the accepting side
 * answers with a welcome, or closes. Little-endian:
 *
 * <pre>
 *   hello:    int32 magic "FXEH"   int16 version (1)   int16 0
 *             int32 rank that connects   int32 tag   32 bytes token of the end it connects to
 *   welcome:  int32 magic "FXEW"   int16 version (1)   int16 0
 * </pre>
 */
final class HandshakeDescriptor {
  static final int HELLO_LENGTH = 16 + EndpointWire.TOKEN_LENGTH;
  static final int WELCOME_LENGTH = 8;

  private static final int HELLO_MAGIC = 0x48455846;
  private static final int WELCOME_MAGIC = 0x57455846;
  private static final int VERSION = 1;
  private static final int VERSION_OFFSET = 4;
  private static final int RANK_OFFSET = 8;
  private static final int TAG_OFFSET = 12;
  private static final int TOKEN_OFFSET = 16;

  private HandshakeDescriptor() {}

  static int putHello(MutableDirectBuffer out, int rank, int tag, byte[] token) {
    out.putInt(0, HELLO_MAGIC, ByteOrder.LITTLE_ENDIAN);
    out.putInt(VERSION_OFFSET, VERSION, ByteOrder.LITTLE_ENDIAN);
    out.putInt(RANK_OFFSET, rank, ByteOrder.LITTLE_ENDIAN);
    out.putInt(TAG_OFFSET, tag, ByteOrder.LITTLE_ENDIAN);
    out.putBytes(TOKEN_OFFSET, token);
    return HELLO_LENGTH;
  }

  static boolean isHello(DirectBuffer in) {
    return in.getInt(0, ByteOrder.LITTLE_ENDIAN) == HELLO_MAGIC
        && in.getInt(VERSION_OFFSET, ByteOrder.LITTLE_ENDIAN) == VERSION;
  }

  static int helloRank(DirectBuffer in) {
    return in.getInt(RANK_OFFSET, ByteOrder.LITTLE_ENDIAN);
  }

  static int helloTag(DirectBuffer in) {
    return in.getInt(TAG_OFFSET, ByteOrder.LITTLE_ENDIAN);
  }

  static byte[] helloToken(DirectBuffer in) {
    byte[] token = new byte[EndpointWire.TOKEN_LENGTH];
    in.getBytes(TOKEN_OFFSET, token);
    return token;
  }

  static int putWelcome(MutableDirectBuffer out) {
    out.putInt(0, WELCOME_MAGIC, ByteOrder.LITTLE_ENDIAN);
    out.putInt(VERSION_OFFSET, VERSION, ByteOrder.LITTLE_ENDIAN);
    return WELCOME_LENGTH;
  }

  static boolean isWelcome(DirectBuffer in) {
    return in.getInt(0, ByteOrder.LITTLE_ENDIAN) == WELCOME_MAGIC
        && in.getInt(VERSION_OFFSET, ByteOrder.LITTLE_ENDIAN) == VERSION;
  }
}
