// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.in;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.ServerChannel;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Connections of the bootstrap that are reset while both processes live. */
@org.junit.jupiter.api.Timeout(120)
class ResumeTest {
  private static final int RANKS = 4;
  private static final int FRAME_LIMIT = 1 << 16;

  private final BootstrapOptions options =
      BootstrapOptions.builder()
          .secret(JobSecret.random())
          .timeout(Duration.ofSeconds(20))
          .heartbeatInterval(Duration.ofMillis(50))
          .build();
  private final Random random = new Random(5);
  private final List<TcpBootstrap> ranks = new ArrayList<>();

  @AfterEach
  void closeAll() {
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  private void join() {
    ranks.addAll(TcpRanks.byAddress(RANKS, options));
  }

  /** Resets every authenticated connection of a rank, on both ends. */
  private static void reset(TcpBootstrap rank) {
    await(
        CompletableFuture.runAsync(
            () ->
                rank.channels().stream()
                    .filter(channel -> channel.pipeline().get("session") != null)
                    .forEach(ResumeTest::reset),
            rank.loop));
  }

  private static void reset(Channel channel) {
    channel.config().setOption(ChannelOption.SO_LINGER, 0);
    channel.pipeline().fireExceptionCaught(new IOException("Connection reset"));
  }

  /** Sends a distinct number from every rank to every other rank. */
  private void exchange(int round) {
    List<CompletableFuture<?>> all = new ArrayList<>();
    for (TcpBootstrap from : ranks) {
      for (TcpBootstrap to : ranks) {
        if (from != to) {
          byte[] message = new byte[Integer.BYTES + random.nextInt(FRAME_LIMIT / 2)];
          ByteBuffer.wrap(message).putInt(round);
          all.add(from.send(to.rank(), 7, message, in(20_000)));
          byte[] expected = message.clone();
          all.add(
              to.recv(from.rank(), 7, in(20_000))
                  .thenAccept(received -> assertThat(received).isEqualTo(expected)));
        }
      }
    }
    await(CompletableFuture.allOf(all.toArray(CompletableFuture<?>[]::new)));
  }

  @Test
  void shouldDeliverEveryMessageOnceAndInOrder() {
    join();
    List<Channel> before = List.copyOf(ranks.get(0).channels());
    for (int round = 0; round < 60; round++) {
      int victim = round % RANKS;
      CompletableFuture<Void> resets = CompletableFuture.runAsync(() -> reset(ranks.get(victim)));
      exchange(round);
      await(resets);
    }
    await(onAll(ranks, each -> each.barrier(in(20_000))));
    assertThat(before)
        .filteredOn(channel -> !(channel instanceof ServerChannel))
        .isNotEmpty()
        .noneMatch(Channel::isActive);
    assertThat(ranks).allMatch(rank -> !rank.failure().isDone());
  }

  @Test
  void shouldDepartCleanlyRightAfterAConnectionReset() {
    join();
    exchange(0);
    reset(ranks.get(1));
    await(ranks.get(1).closeAsync());
    List<TcpBootstrap> others = List.of(ranks.get(0), ranks.get(2), ranks.get(3));
    await(
        CompletableFuture.allOf(
            others.stream()
                .map(each -> each.recv(1, 9, soon()).handle((message, left) -> left))
                .toArray(CompletableFuture<?>[]::new)));
    assertThat(others).allMatch(rank -> !rank.failure().isDone());
  }

  @Test
  void shouldAnnounceTheRootsDepartureAfterAConnectionReset() {
    join();
    reset(ranks.get(0));
    await(ranks.get(0).closeAsync());
    exchangeWithoutRoot();
    assertThat(ranks.subList(1, RANKS)).allMatch(rank -> !rank.failure().isDone());
  }

  private void exchangeWithoutRoot() {
    CompletableFuture<Void> sent = ranks.get(1).send(2, 3, new byte[] {5}, in(20_000));
    assertThat(await(ranks.get(2).recv(1, 3, in(20_000)))).containsExactly(5);
    await(sent);
  }

  @Test
  void shouldNameARankThatDiesWhileItsConnectionsAreReset() {
    join();
    exchange(0);
    reset(ranks.get(2));
    await(TcpRanks.kill(ranks.get(2)));
    for (TcpBootstrap survivor : List.of(ranks.get(0), ranks.get(1), ranks.get(3))) {
      FluxCclException reason = await(survivor.failure());
      assertThat(reason.code()).isEqualTo(ErrorCode.REMOTE_FAILURE);
      assertThat(reason.rank()).isEqualTo(2);
    }
  }

  @Test
  void shouldSendTheFailureToAllRanksAfterAConnectionReset() {
    join();
    reset(ranks.get(0));
    ranks.get(0).abort(Aborted.of(0, "enough"));
    for (TcpBootstrap rank : ranks) {
      assertThat(await(rank.failure())).hasMessageContaining("enough");
    }
  }

  // ---- one end by itself ----

  /** A session over a channel without a socket. */
  private static final class Lone extends ResumingSession {
    final List<BootstrapFrame> arrived = new ArrayList<>();
    int sought;
    boolean over;

    Lone(Channel channel) {
      super(new byte[BootstrapFrameCodec.NONCE_BYTES], channel);
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
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
      arrived.add(frame);
    }
  }

  private static final class Handshaken extends ChannelInboundHandlerAdapter {}

  private static EmbeddedChannel channel() {
    return new EmbeddedChannel(new Frames.Decoder(FRAME_LIMIT), new Handshaken());
  }

  private static Lone session(EmbeddedChannel channel) {
    Lone session = new Lone(channel);
    session.replace(channel.pipeline().get(Handshaken.class), FRAME_LIMIT);
    return session;
  }

  private static Data message(int sequence, int bytes) {
    return Data.of(
        new StreamKey(StreamKey.ALL, 0, StreamKey.Space.TAGGED, 0, sequence),
        Message.of(new byte[bytes]));
  }

  /** Returns the acceptor's side of a connection whose peer has received that many messages. */
  private static EmbeddedChannel resumed(Lone session, long received) {
    EmbeddedChannel next = channel();
    next.pipeline().addLast(new Handshake.Acceptor(new ClosedGate()));
    Handshake.Acceptor acceptor = next.pipeline().get(Handshake.Acceptor.class);
    ResumingSession.accept(next, acceptor, session);
    deliver(next, new Resume(new byte[BootstrapFrameCodec.NONCE_BYTES], received));
    return next;
  }

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

  private static void deliver(EmbeddedChannel channel, BootstrapFrame frame) {
    channel.pipeline().context(Frames.Decoder.class).fireChannelRead(frame);
    channel.runPendingTasks();
  }

  private static List<BootstrapFrame> written(EmbeddedChannel channel) {
    List<BootstrapFrame> all = new ArrayList<>();
    for (BootstrapFrame each = channel.readOutbound();
        each != null;
        each = channel.readOutbound()) {
      all.add(each);
    }
    return all;
  }

  private static void breakOff(EmbeddedChannel channel) {
    channel.pipeline().fireExceptionCaught(new IOException("Connection reset"));
    channel.runPendingTasks();
  }

  @Test
  void shouldResendUnreceivedMessagesOnResume() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    for (int i = 0; i < 3; i++) {
      session.write(message(i, 10));
    }
    session.write(new Pong());
    breakOff(channel);
    assertThat(session.sought).isEqualTo(1);
    session.write(message(3, 10));
    EmbeddedChannel next = resumed(session, 2);
    assertThat(written(next))
        .filteredOn(Data.class::isInstance)
        .extracting(frame -> ((Data) frame).sequence())
        .containsExactly(2, 3);
    assertThat(session.over).isFalse();
  }

  @Test
  void shouldConfirmMessagesAndDropConfirmedOnes() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    for (int i = 0; i < 64; i++) {
      deliver(channel, message(i, 1));
    }
    assertThat(written(channel)).containsExactly(new Confirm(64));
    for (int i = 0; i < 5; i++) {
      session.write(message(i, 10));
    }
    deliver(channel, new Confirm(4));
    breakOff(channel);
    // It has confirmed 4 messages, so a claim of 3 is false.
    assertThat(written(resumed(session, 3)))
        .singleElement()
        .satisfies(frame -> assertThat(((Resume) frame).received()).isZero());
    assertThat(written(resumed(session, 4))).hasSize(2);
  }

  @Test
  void shouldRefuseToResumeIfNeededMessagesWereDropped() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    for (int i = 0; i < 3; i++) {
      session.write(message(i, FRAME_LIMIT / 2));
    }
    breakOff(channel);
    assertThat(written(resumed(session, 1))).hasSize(1);
    assertThat(written(resumed(session, 2))).hasSize(2);
  }

  /** Survivors of a killed root may listen at its address before all have noticed. */
  @Test
  void shouldEndASessionIfAnotherJobListensAtThePeersAddress() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    breakOff(channel);
    assertThat(session.over).isFalse();
    session.secretMismatch();
    assertThat(session.over).isTrue();
  }

  @Test
  void shouldEndASessionIfThePeerClosesIt() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    channel.close();
    channel.runPendingTasks();
    assertThat(session.over).isTrue();
    assertThat(session.sought).isZero();
  }

  @Test
  void shouldRefuseAResumeWithAnotherNonce() {
    EmbeddedChannel channel = channel();
    Lone session = session(channel);
    breakOff(channel);
    EmbeddedChannel next = channel();
    next.pipeline().addLast(new Handshake.Acceptor(new ClosedGate()));
    ResumingSession.accept(next, next.pipeline().get(Handshake.Acceptor.class), session);
    byte[] other = new byte[BootstrapFrameCodec.NONCE_BYTES];
    other[3] = 1;
    deliver(next, new Resume(other, 0));
    assertThat(written(next)).hasSize(1);
    assertThat(session.isResuming()).isTrue();
  }
}
