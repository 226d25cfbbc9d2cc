// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.IOException;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** One end of a connection that is reset, over a channel without a socket. */
class ResumingSessionTest {
  private static final int FRAME_LIMIT = 1 << 16;

  private final EmbeddedChannel channel = channel();
  private final Lone session = new Lone(channel);

  private static final class Lone extends ResumingSession {
    int sought;
    boolean over;

    Lone(Channel channel) {
      super(new byte[BootstrapFrameCodec.NONCE_BYTES], channel);
      replace(channel.pipeline().get(Handshaken.class), FRAME_LIMIT);
    }

    @Override
    boolean mayResume() {
      return true;
    }

    @Override
    void reconnectOrProbe() {
      sought++;
    }

    @Override
    void ended() {
      over = true;
    }

    @Override
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {}
  }

  private static final class Handshaken extends ChannelInboundHandlerAdapter {}

  private static final class ClosedGate extends Gate {
    @Override
    CompletableFuture<SessionKey> key() {
      return new CompletableFuture<>();
    }

    @Override
    BootstrapFrame.Admission judge(BootstrapFrame.Proof proof) {
      return BootstrapFrame.Admission.JOB_COMPLETE;
    }

    @Override
    int expectedRanks() {
      return 0;
    }

    @Override
    void admitted(Channel channel, Handshake.Acceptor acceptor, BootstrapFrame.Proof proof) {
      throw new IllegalStateException();
    }
  }

  private static EmbeddedChannel channel() {
    return new EmbeddedChannel(new Frames.Decoder(FRAME_LIMIT), new Handshaken());
  }

  private void write(int messages, int bytes) {
    for (int i = 0; i < messages; i++) {
      session.write(message(i, bytes));
    }
  }

  private static Data message(int sequence, int bytes) {
    return Data.of(
        new StreamKey(StreamKey.ALL, 0, StreamKey.Space.TAGGED, 0, sequence),
        Message.of(new byte[bytes]));
  }

  /** Returns what is written to a peer that connects again and names the messages it has. */
  private List<BootstrapFrame> resumed(byte[] nonce, long received) {
    EmbeddedChannel next = channel();
    next.pipeline().addLast(new Handshake.Acceptor(new ClosedGate()));
    ResumingSession.accept(next, next.pipeline().get(Handshake.Acceptor.class), session);
    deliver(next, new Resume(nonce, received));
    return written(next);
  }

  private List<BootstrapFrame> resumed(long received) {
    return resumed(new byte[BootstrapFrameCodec.NONCE_BYTES], received);
  }

  private static void deliver(EmbeddedChannel channel, BootstrapFrame frame) {
    channel.pipeline().context(Frames.Decoder.class).fireChannelRead(frame);
    channel.runPendingTasks();
  }

  private static List<BootstrapFrame> written(EmbeddedChannel channel) {
    return Stream.generate(() -> channel.<BootstrapFrame>readOutbound())
        .takeWhile(Objects::nonNull)
        .toList();
  }

  private void reset() {
    channel.pipeline().fireExceptionCaught(new IOException("Connection reset"));
    channel.runPendingTasks();
  }

  @Test
  void shouldResendUnreceivedMessagesOnResume() {
    write(3, 10);
    session.write(new Pong());
    reset();
    assertThat(session.sought).isEqualTo(1);
    session.write(message(3, 10));
    assertThat(resumed(2))
        .filteredOn(Data.class::isInstance)
        .extracting(frame -> ((Data) frame).sequence())
        .containsExactly(2, 3);
    assertThat(session.over).isFalse();
  }

  @Test
  void shouldConfirmMessagesAndDropConfirmedOnes() {
    for (int i = 0; i < 64; i++) {
      deliver(channel, message(i, 1));
    }
    assertThat(written(channel)).containsExactly(new Confirm(64));
    write(5, 10);
    deliver(channel, new Confirm(4));
    reset();
    // It has confirmed 4 messages, so a claim of 3 is false.
    assertThat(resumed(3))
        .singleElement()
        .satisfies(frame -> assertThat(((Resume) frame).received()).isZero());
    assertThat(resumed(4)).hasSize(2);
  }

  @Test
  void shouldRefuseToResumeIfNeededMessagesWereDropped() {
    write(3, FRAME_LIMIT / 2);
    reset();
    assertThat(resumed(1)).hasSize(1);
    assertThat(resumed(2)).hasSize(2);
  }

  /** Survivors of a killed root may listen at its address before all have noticed. */
  @Test
  void shouldEndASessionIfAnotherJobListensAtThePeersAddress() {
    reset();
    assertThat(session.over).isFalse();
    session.secretMismatch();
    assertThat(session.over).isTrue();
  }

  @Test
  void shouldEndASessionIfThePeerClosesIt() {
    channel.close();
    channel.runPendingTasks();
    assertThat(session.over).isTrue();
    assertThat(session.sought).isZero();
  }

  @Test
  void shouldRefuseAResumeWithAnotherNonce() {
    reset();
    byte[] other = new byte[BootstrapFrameCodec.NONCE_BYTES];
    other[3] = 1;
    assertThat(resumed(other, 0)).hasSize(1);
    assertThat(session.isResuming()).isTrue();
  }
}
