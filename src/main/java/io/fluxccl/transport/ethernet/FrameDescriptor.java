package io.fluxccl.transport.ethernet;

import io.fluxccl.ErrorCode;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.agrona.MutableDirectBuffer;

/**
 * The frames on a socket after the handshake. Little-endian; every frame starts with
 *
 * <pre>
 *   int16 magic "FX"   int8 type   int8 code   int32 message length
 * </pre>
 *
 * where code and message length are 0 except in ERROR, and goes on with
 *
 * <pre>
 *   WRITE    int64 memory id   int64 offset   int64 length   then that many bytes of payload
 *   UPDATE   int64 memory id   int64 offset   int64 value
 *   FLUSH    int64 ticket; not always higher than those before, as threads flush at once
 *   ACK      int64 ticket: that flush, and all of lower tickets, are done
 *   ERROR    the message in UTF-8, at most 1 KiB; code is the ordinal of an ErrorCode
 *   GOODBYE  nothing
 * </pre>
 *
 * WRITE, UPDATE and FLUSH go from the side that connected the socket to the side that accepted it,
 * ACK and ERROR the other way, GOODBYE both ways.
 */
final class FrameDescriptor {
  static final int WRITE = 1;
  static final int UPDATE = 2;
  static final int FLUSH = 3;
  static final int ACK = 4;
  static final int ERROR = 5;
  static final int GOODBYE = 6;

  static final short MAGIC = 0x5846;
  static final int HEADER_LENGTH = 8;
  static final int MEMORY_FRAME_LENGTH = 32;
  static final int TICKET_FRAME_LENGTH = 16;
  static final int MAX_MESSAGE_LENGTH = 1024;

  /** The longest frame, a WRITE's payload left aside. */
  static final int MAX_FRAME_LENGTH = HEADER_LENGTH + MAX_MESSAGE_LENGTH;

  static final int TYPE_OFFSET = 2;
  static final int CODE_OFFSET = 3;
  static final int MESSAGE_LENGTH_OFFSET = 4;
  static final int MEMORY_OFFSET = 8;
  static final int TICKET_OFFSET = 8;
  static final int TARGET_OFFSET = 16;
  static final int LENGTH_OFFSET = 24;
  static final int VALUE_OFFSET = 24;

  private FrameDescriptor() {}

  static int putWrite(MutableDirectBuffer out, int at, long memory, long offset, long length) {
    return putMemoryFrame(out, at, WRITE, memory, offset, length);
  }

  static int putUpdate(MutableDirectBuffer out, int at, long memory, long offset, long value) {
    return putMemoryFrame(out, at, UPDATE, memory, offset, value);
  }

  static int putFlush(MutableDirectBuffer out, int at, long ticket) {
    return putTicketFrame(out, at, FLUSH, ticket);
  }

  static int putAck(MutableDirectBuffer out, int at, long ticket) {
    return putTicketFrame(out, at, ACK, ticket);
  }

  static int putError(MutableDirectBuffer out, int at, ErrorCode code, String message) {
    byte[] bytes = message.getBytes(StandardCharsets.UTF_8);
    byte[] kept = Arrays.copyOf(bytes, Math.min(bytes.length, MAX_MESSAGE_LENGTH));
    putHeader(out, at, ERROR, code.ordinal(), kept.length);
    out.putBytes(at + HEADER_LENGTH, kept);
    return HEADER_LENGTH + kept.length;
  }

  static int putGoodbye(MutableDirectBuffer out, int at) {
    putHeader(out, at, GOODBYE, 0, 0);
    return HEADER_LENGTH;
  }

  private static int putMemoryFrame(
      MutableDirectBuffer out, int at, int type, long memory, long offset, long last) {
    putHeader(out, at, type, 0, 0);
    out.putLong(at + MEMORY_OFFSET, memory, ByteOrder.LITTLE_ENDIAN);
    out.putLong(at + TARGET_OFFSET, offset, ByteOrder.LITTLE_ENDIAN);
    out.putLong(at + LENGTH_OFFSET, last, ByteOrder.LITTLE_ENDIAN);
    return MEMORY_FRAME_LENGTH;
  }

  private static int putTicketFrame(MutableDirectBuffer out, int at, int type, long ticket) {
    putHeader(out, at, type, 0, 0);
    out.putLong(at + TICKET_OFFSET, ticket, ByteOrder.LITTLE_ENDIAN);
    return TICKET_FRAME_LENGTH;
  }

  private static void putHeader(
      MutableDirectBuffer out, int at, int type, int code, int messageLength) {
    out.putShort(at, MAGIC, ByteOrder.LITTLE_ENDIAN);
    out.putByte(at + TYPE_OFFSET, (byte) type);
    out.putByte(at + CODE_OFFSET, (byte) code);
    out.putInt(at + MESSAGE_LENGTH_OFFSET, messageLength, ByteOrder.LITTLE_ENDIAN);
  }
}
