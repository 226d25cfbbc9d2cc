package io.fluxccl.transport.ethernet;

import static io.fluxccl.transport.ethernet.FrameStreams.ALL_FRAMES;
import static io.fluxccl.transport.ethernet.FrameStreams.allFrames;
import static io.fluxccl.transport.ethernet.FrameStreams.feed;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.ErrorCode;
import io.fluxccl.transport.ethernet.FrameStreams.Notes;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class FrameDecoderTest {
  @Test
  void shouldFindTheSameFramesWhereverTheStreamIsCut() {
    byte[] frames = allFrames();
    for (int first = 0; first <= frames.length; first++) {
      for (int second = first; second <= frames.length; second += 7) {
        Notes notes = new Notes();
        feed(frames, new int[] {first, second, frames.length}, notes);
        assertThat(notes.notes).isEqualTo(ALL_FRAMES);
      }
    }
  }

  @Test
  void shouldFindTheSameFramesWhenBytesComeOneByOne() {
    byte[] frames = allFrames();
    int[] cuts = new int[frames.length];
    for (int i = 0; i < cuts.length; i++) {
      cuts[i] = i + 1;
    }
    Notes notes = new Notes();
    feed(frames, cuts, notes);
    assertThat(notes.notes).isEqualTo(ALL_FRAMES);
  }

  @Test
  void shouldCutMessagesThatAreTooLong() {
    UnsafeBuffer out = new UnsafeBuffer(new byte[2048]);
    int length = FrameDescriptor.putError(out, 0, ErrorCode.ABORTED, "x".repeat(5000));
    assertThat(length).isEqualTo(FrameDescriptor.MAX_FRAME_LENGTH);
    Notes notes = new Notes();
    assertThat(new FrameDecoder().decode(out, 0, length, notes)).isEqualTo(length);
    assertThat(notes.notes).containsExactly("error ABORTED " + "x".repeat(1024));
  }

  @Test
  void shouldRefuseFramesThatAreNone() {
    for (int index = 0; index < FrameDescriptor.HEADER_LENGTH; index++) {
      UnsafeBuffer out = new UnsafeBuffer(new byte[64]);
      FrameDescriptor.putUpdate(out, 0, 1, 8, 1);
      out.putByte(index, (byte) 0x7f);
      assertThatThrownBy(() -> new FrameDecoder().decode(out, 0, 64, new Notes()))
          .isInstanceOf(ProtocolViolation.class);
    }
    UnsafeBuffer negative = new UnsafeBuffer(new byte[64]);
    FrameDescriptor.putWrite(negative, 0, 1, 0, -1);
    assertThatThrownBy(() -> new FrameDecoder().decode(negative, 0, 64, new Notes()))
        .isInstanceOf(ProtocolViolation.class);
  }
}
