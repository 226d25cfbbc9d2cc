// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.assertLost;
import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.in;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.netty.channel.Channel;
import io.netty.channel.ChannelOption;
import io.netty.channel.ServerChannel;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
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

  @BeforeEach
  void join() {
    ranks.addAll(TcpRanks.byAddress(RANKS, options));
  }

  /** Resets every authenticated connection of a rank, on both ends. */
  private static void reset(TcpBootstrap rank) {
    await(
        CompletableFuture.runAsync(
            () ->
                rank.job.sockets.channels.stream()
                    .filter(channel -> channel.pipeline().get("link") != null)
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
    List<Channel> before = List.copyOf(ranks.get(0).job.sockets.channels);
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
    exchange(0);
    reset(ranks.get(1));
    await(ranks.get(1).closeAsync());
    List<TcpBootstrap> others = List.of(ranks.get(0), ranks.get(2), ranks.get(3));
    await(onAll(others, each -> each.recv(1, 9, soon()).handle((message, left) -> left)));
    assertThat(others).allMatch(rank -> !rank.failure().isDone());
  }

  @Test
  void shouldAnnounceTheRootsDepartureAfterAConnectionReset() {
    reset(ranks.get(0));
    await(ranks.get(0).closeAsync());
    CompletableFuture<Void> sent = ranks.get(1).send(2, 3, new byte[] {5}, in(20_000));
    assertThat(await(ranks.get(2).recv(1, 3, in(20_000)))).containsExactly(5);
    await(sent);
    assertThat(ranks.subList(1, RANKS)).allMatch(rank -> !rank.failure().isDone());
  }

  @Test
  void shouldNameARankThatDiesWhileItsConnectionsAreReset() {
    exchange(0);
    reset(ranks.get(2));
    await(TcpRanks.kill(ranks.get(2)));
    for (int survivor : new int[] {0, 1, 3}) {
      assertLost(await(ranks.get(survivor).failure()), 2);
    }
  }

  @Test
  void shouldSendTheFailureToAllRanksAfterAConnectionReset() {
    reset(ranks.get(0));
    ranks.get(0).abort(Aborted.of(0, "enough"));
    for (TcpBootstrap rank : ranks) {
      assertThat(await(rank.failure())).hasMessageContaining("enough");
    }
  }
}
