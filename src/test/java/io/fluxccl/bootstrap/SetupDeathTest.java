// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.assertLost;
import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.IntStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A rank that dies during set-up fails the set-up of all others, which name it. */
@org.junit.jupiter.api.Timeout(90)
class SetupDeathTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final int port = Ports.reserved();
  private final String address = "127.0.0.1:" + port;
  private final List<TcpBootstrap> ranks = new ArrayList<>();

  @AfterEach
  void closeAll() {
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  private static BootstrapOptions within(Duration limit) {
    return BootstrapOptions.builder().timeout(limit).build();
  }

  private void create(int nRanks) {
    ranks.addAll(TcpRanks.create(nRanks, within(LONG)));
  }

  /** Starts the first ranks, and waits until they have registered. */
  private List<CompletableFuture<Void>> start(int count) {
    List<TcpBootstrap> first = ranks.subList(0, count);
    List<CompletableFuture<Void>> joined = onAll(first, each -> each.initialize(address));
    List<Integer> missing = IntStream.range(count, ranks.size()).boxed().toList();
    for (TcpBootstrap each : first) {
      Awaitility.await().ignoreExceptions().until(() -> TcpRanks.missing(each).equals(missing));
    }
    return joined;
  }

  private void assertAllLose(int victim, List<CompletableFuture<Void>> joined) {
    for (int rank = 0; rank < joined.size(); rank++) {
      if (rank != victim) {
        assertLost(outcome(rank, joined.get(rank)), victim);
      }
    }
  }

  /** Returns the reason why the rank did not join or why its job failed. */
  private FluxCclException outcome(int rank, CompletableFuture<Void> joined) {
    try {
      joined.copy().orTimeout(50, java.util.concurrent.TimeUnit.SECONDS).join();
      return await(ranks.get(rank).failure());
    } catch (CompletionException failed) {
      return FluxCclException.from(failed);
    }
  }

  @ParameterizedTest
  @CsvSource({"3,0", "3,1", "4,0", "4,2"})
  void shouldNameADeadRankIfOthersHaveNotJoinedYet(int nRanks, int victim) {
    create(nRanks);
    List<CompletableFuture<Void>> joined = start(nRanks - 1);
    await(TcpRanks.kill(ranks.get(victim)));
    assertAllLose(victim, joined);
  }

  @ParameterizedTest
  @CsvSource({"3,0", "3,1", "3,2", "4,0", "4,3"})
  void shouldNameARankThatDiesWhenAllHaveJoined(int nRanks, int victim) {
    create(nRanks);
    List<CompletableFuture<Void>> joined = onAll(ranks, each -> each.initialize(address));
    joined.get(victim).thenRun(() -> TcpRanks.kill(ranks.get(victim)));
    assertAllLose(victim, joined);
  }

  @Test
  void shouldNameARankThatDiesAsSoonAsItHasRequestedItsRank() throws IOException {
    create(3);
    List<CompletableFuture<Void>> joined = start(2);
    try (RawPeer dying = new RawPeer()) {
      dying.requestRank(2, 3, TcpRanks.loopback(port));
      dying.read(Propose.class);
    }
    assertAllLose(2, joined);
  }

  @Test
  void shouldAdmitAReplacementIfItJoinsRightAfterADeath() {
    create(3);
    List<CompletableFuture<Void>> joined = start(2);
    TcpBootstrap replacement = TcpBootstrap.create(1, 3, within(LONG));
    await(TcpRanks.kill(ranks.get(1)));
    ranks.add(replacement);
    CompletableFuture<Void> again = replacement.initialize(address);
    CompletableFuture<Void> last = ranks.get(2).initialize(address);
    await(List.of(joined.get(0), again, last));
  }

  @Test
  void shouldSendTheMissingRanksToOthersIfTheRootsRankTimesOut() {
    ranks.add(TcpBootstrap.create(0, 4, within(Duration.ofSeconds(8))));
    for (int rank = 1; rank < 4; rank++) {
      ranks.add(TcpBootstrap.create(rank, 4, within(LONG)));
    }
    List<CompletableFuture<Void>> joined = start(3);
    for (CompletableFuture<Void> each : joined) {
      assertThat(assertFails(each, Timeout.class, "[3] did not join").rank()).isEqualTo(3);
    }
  }

  @Test
  void shouldReportThatTheRootsRankHasLeft() {
    create(3);
    List<CompletableFuture<Void>> joined = start(2);
    await(ranks.get(0).closeAsync());
    assertLost(assertFails(joined.get(1), RemoteFailure.class, "has left or died"), 0);
  }
}
