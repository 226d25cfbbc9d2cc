package io.fluxccl.transport.ethernet;

import static io.fluxccl.transport.ethernet.FrameDescriptor.ACK;
import static io.fluxccl.transport.ethernet.FrameDescriptor.CODE_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.ERROR;
import static io.fluxccl.transport.ethernet.FrameDescriptor.FLUSH;
import static io.fluxccl.transport.ethernet.FrameDescriptor.GOODBYE;
import static io.fluxccl.transport.ethernet.FrameDescriptor.HEADER_LENGTH;
import static io.fluxccl.transport.ethernet.FrameDescriptor.LENGTH_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.MAX_MESSAGE_LENGTH;
import static io.fluxccl.transport.ethernet.FrameDescriptor.MEMORY_FRAME_LENGTH;
import static io.fluxccl.transport.ethernet.FrameDescriptor.MEMORY_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.MESSAGE_LENGTH_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.TARGET_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.TICKET_FRAME_LENGTH;
import static io.fluxccl.transport.ethernet.FrameDescriptor.TICKET_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.TYPE_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.UPDATE;
import static io.fluxccl.transport.ethernet.FrameDescriptor.VALUE_OFFSET;
import static io.fluxccl.transport.ethernet.FrameDescriptor.WRITE;

import io.fluxccl.ErrorCode;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.agrona.DirectBuffer;

/**
 * Cuts a stream into the frames of {@link FrameDescriptor}, however it is fragmented. Keeps no
 * bytes: what is not a whole frame yet, or not taken yet, is left to be offered again. Not
 * thread-safe.
 */
final class FrameDecoder {
  private static final ErrorCode[] CODES = ErrorCode.values();

  private long payloadRemaining;

  /** Bytes of the current WRITE's payload that are still to come. */
  long payloadRemaining() {
    return payloadRemaining;
  }

  /** Says that bytes of the payload were taken off the stream without passing through here. */
  void payloadTaken(long length) {
    payloadRemaining -= length;
  }

  /**
   * Decodes as many frames, and as much payload, as there is.
   *
   * @return how many bytes were used; the rest, less than a frame or what the sink does not take
   *     yet, comes again with what follows
   * @throws ProtocolViolation if the bytes are no frame, or the sink refuses one
   */
  int decode(DirectBuffer in, int offset, int limit, FrameSink sink) {
    int at = offset;
    while (at < limit) {
      int used =
          payloadRemaining > 0
              ? payload(in, at, limit - at, sink)
              : frame(in, at, limit - at, sink);
      if (used == 0) {
        break;
      }
      at += used;
    }
    return at - offset;
  }

  private int payload(DirectBuffer in, int at, int available, FrameSink sink) {
    int length = (int) Math.min(payloadRemaining, available);
    int taken = sink.onPayload(in, at, length);
    payloadRemaining -= taken;
    return taken;
  }

  private int frame(DirectBuffer in, int at, int available, FrameSink sink) {
    if (available < HEADER_LENGTH) {
      return 0;
    }
    int type = in.getByte(at + TYPE_OFFSET);
    int messageLength = in.getInt(at + MESSAGE_LENGTH_OFFSET, ByteOrder.LITTLE_ENDIAN);
    int length = checkedLength(in, at, type, messageLength);
    if (available < length) {
      return 0;
    }
    switch (type) {
      case WRITE:
        return write(in, at, sink) ? length : 0;
      case UPDATE:
        boolean taken =
            sink.onUpdate(
                longAt(in, at + MEMORY_OFFSET),
                longAt(in, at + TARGET_OFFSET),
                longAt(in, at + VALUE_OFFSET));
        return taken ? length : 0;
      case FLUSH:
        sink.onFlush(longAt(in, at + TICKET_OFFSET));
        break;
      case ACK:
        sink.onAck(longAt(in, at + TICKET_OFFSET));
        break;
      case ERROR:
        byte[] message = new byte[messageLength];
        in.getBytes(at + HEADER_LENGTH, message);
        sink.onError(
            CODES[in.getByte(at + CODE_OFFSET)], new String(message, StandardCharsets.UTF_8));
        break;
      default:
        sink.onGoodbye();
    }
    return length;
  }

  private boolean write(DirectBuffer in, int at, FrameSink sink) {
    long length = longAt(in, at + LENGTH_OFFSET);
    if (length < 0) {
      throw new ProtocolViolation("a WRITE of length=" + length);
    }
    boolean taken =
        sink.onWrite(longAt(in, at + MEMORY_OFFSET), longAt(in, at + TARGET_OFFSET), length);
    if (taken) {
      payloadRemaining = length;
    }
    return taken;
  }

  private static int checkedLength(DirectBuffer in, int at, int type, int messageLength) {
    int code = in.getByte(at + CODE_OFFSET);
    boolean error = type == ERROR;
    if (in.getShort(at, ByteOrder.LITTLE_ENDIAN) != FrameDescriptor.MAGIC
        || type < WRITE
        || type > GOODBYE
        || messageLength < 0
        || messageLength > (error ? MAX_MESSAGE_LENGTH : 0)
        || code < 0
        || code >= (error ? CODES.length : 1)) {
      throw new ProtocolViolation(
          "bytes that are no frame: 0x" + Long.toHexString(longAt(in, at)) + "...");
    }
    switch (type) {
      case WRITE:
      case UPDATE:
        return MEMORY_FRAME_LENGTH;
      case FLUSH:
      case ACK:
        return TICKET_FRAME_LENGTH;
      default:
        return HEADER_LENGTH + messageLength;
    }
  }

  private static long longAt(DirectBuffer in, int index) {
    return in.getLong(index, ByteOrder.LITTLE_ENDIAN);
  }
}
