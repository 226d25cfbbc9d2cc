package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.TransportFailure;
import java.util.ArrayList;
import java.util.List;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** A stream with one of every frame, and ways to offer streams to the decoder. */
final class FrameStreams {
  private FrameStreams() {}

  /** Writes down what it is told; payload as one text however it is cut. */
  static final class Notes implements FrameSink {
    final List<String> notes = new ArrayList<>();
    private final StringBuilder payload = new StringBuilder();

    private void note(String note) {
      if (payload.length() > 0) {
        notes.add("payload " + payload);
        payload.setLength(0);
      }
      notes.add(note);
    }

    @Override
    public boolean onWrite(long memory, long offset, long length) {
      note("write " + memory + " " + offset + " " + length);
      return true;
    }

    @Override
    public int onPayload(DirectBuffer buffer, int index, int length) {
      for (int i = 0; i < length; i++) {
        payload.append(buffer.getByte(index + i)).append(',');
      }
      return length;
    }

    @Override
    public boolean onUpdate(long memory, long offset, long value) {
      note("update " + memory + " " + offset + " " + value);
      return true;
    }

    @Override
    public void onFlush(long ticket) {
      note("flush " + ticket);
    }

    @Override
    public void onAck(long ticket) {
      note("ack " + ticket);
    }

    @Override
    public void onError(ErrorCode code, String message) {
      note("error " + code + " " + message);
    }

    @Override
    public void onGoodbye() {
      note("goodbye");
    }
  }

  static final List<String> ALL_FRAMES =
      List.of(
          "write -5 9000000000 70",
          "payload " + payloadText(),
          "write 1 2 0",
          "update 3 16 -9",
          "flush 77",
          "ack 78",
          "error TIMEOUT grüße",
          "goodbye");

  static String payloadText() {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < 70; i++) {
      text.append(i - 30).append(',');
    }
    return text.toString();
  }

  static byte[] allFrames() {
    UnsafeBuffer out = new UnsafeBuffer(new byte[1024]);
    int at = FrameDescriptor.putWrite(out, 0, -5, 9_000_000_000L, 70);
    for (int i = 0; i < 70; i++) {
      out.putByte(at++, (byte) (i - 30));
    }
    at += FrameDescriptor.putWrite(out, at, 1, 2, 0);
    at += FrameDescriptor.putUpdate(out, at, 3, 16, -9);
    at += FrameDescriptor.putFlush(out, at, 77);
    at += FrameDescriptor.putAck(out, at, 78);
    at += FrameDescriptor.putError(out, at, ErrorCode.TIMEOUT, "grüße");
    at += FrameDescriptor.putGoodbye(out, at);
    byte[] frames = new byte[at];
    out.getBytes(0, frames);
    return frames;
  }

  /** Offers the bytes as a socket would: what was not used comes again with what follows. */
  static void feed(byte[] bytes, int[] cuts, FrameSink sink) {
    FrameDecoder decoder = new FrameDecoder();
    UnsafeBuffer buffer = new UnsafeBuffer(bytes);
    int start = 0;
    for (int cut : cuts) {
      start += decoder.decode(buffer, start, cut, sink);
      assertThat(start).isLessThanOrEqualTo(cut);
      assertThat(decoder.payloadRemaining()).isNotNegative();
      assertThat(cut - start).isLessThan(FrameDescriptor.MAX_FRAME_LENGTH);
    }
  }

  static void decodeOrRefuse(byte[] bytes, int cut) {
    try {
      feed(bytes, new int[] {cut, bytes.length}, new Notes());
    } catch (ProtocolViolation refused) {
      assertThat(refused).hasMessageNotContaining("null");
    }
  }

  static void wireOrRefuse(byte[] bytes) {
    try {
      assertThat(EndpointWire.decode(bytes, 3).encode()).isEqualTo(bytes);
    } catch (TransportFailure refused) {
      assertThat(refused.rank()).isEqualTo(3);
    }
    try {
      assertThat(EthernetMemory.decode(bytes, 3, 8).wire()).isEqualTo(bytes);
    } catch (TransportFailure refused) {
      assertThat(refused.rank()).isEqualTo(3);
    }
  }
}
