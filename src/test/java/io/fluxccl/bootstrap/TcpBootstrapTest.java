// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.TcpRanks.assertTakesLessThan;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class TcpBootstrapTest extends BootstrapContract {
  private static final BootstrapOptions OPTIONS =
      BootstrapOptions.builder().messageLimit(LIMIT).timeout(Duration.ofSeconds(20)).build();
  private static final byte[] NOTHING = {};

  @Override
  List<? extends Bootstrap> makeGroup(int nRanks) {
    return TcpRanks.byAddress(nRanks, OPTIONS);
  }

  @Override
  CompletableFuture<Void> kill(Bootstrap bootstrap) {
    return TcpRanks.kill((TcpBootstrap) bootstrap);
  }

  private static BootstrapOptions within(long millis) {
    return BootstrapOptions.builder().timeout(Duration.ofMillis(millis)).build();
  }

  private static void gatherAndClose(List<TcpBootstrap> ranks) {
    try {
      await(onAll(ranks, each -> each.allGather(new byte[each.rank()], soon())))
          .forEach(all -> assertThat(all.get(ranks.size() - 1)).hasSize(ranks.size() - 1));
    } finally {
      await(onAll(ranks, TcpBootstrap::closeAsync));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"127.0.0.1:", "lo:127.0.0.1:", "localhost:"})
  void shouldFormAJobByAddressInterfaceOrHostName(String host) {
    gatherAndClose(TcpRanks.byAddress(3, OPTIONS, host + Ports.reserved()));
  }

  @Test
  void shouldFormAJobByUniqueId() {
    gatherAndClose(TcpRanks.byId(4, OPTIONS));
    gatherAndClose(TcpRanks.byId(3, BootstrapOptions.builder().networkInterface("lo").build()));
  }

  @Test
  void shouldReportAnUnknownHostAtTheTimeout() {
    assertThat(TcpRanks.failureOfJoining("nowhere.invalid:29500", Duration.ofSeconds(2)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage("address=nowhere.invalid:29500: the host is unknown");
  }

  @Test
  void shouldFormANewJobAfterTheLastOneHasClosed() {
    String address = "127.0.0.1:" + Ports.reserved();
    for (int round = 0; round < 10; round++) {
      gatherAndClose(TcpRanks.byAddress(3, OPTIONS, address));
    }
  }

  @Test
  void shouldFormANewJobWhileTheLastOneStillCloses() {
    String address = "127.0.0.1:" + Ports.reserved();
    List<CompletableFuture<Void>> closing = new ArrayList<>();
    for (int round = 0; round < 10; round++) {
      List<TcpBootstrap> ranks = TcpRanks.byAddress(3, OPTIONS, address);
      await(onAll(ranks, each -> each.barrier(soon())));
      closing.addAll(onAll(ranks, TcpBootstrap::closeAsync));
    }
    await(closing);
  }

  @Test
  void shouldFormAJobIfTheRootJoinsLast() {
    String address = "127.0.0.1:" + Ports.reserved();
    List<TcpBootstrap> ranks = TcpRanks.create(3, OPTIONS);
    CompletableFuture<Void> one = ranks.get(1).initialize(address);
    CompletableFuture<Void> two = ranks.get(2).initialize(address);
    Awaitility.await().during(Duration.ofMillis(300)).until(() -> !one.isDone() && !two.isDone());
    await(ranks.get(0).initialize(address));
    await(one);
    await(two);
    gatherAndClose(ranks);
  }

  @Test
  void shouldNameTheMissingRanksNearTheDeadline() {
    String address = "127.0.0.1:" + Ports.reserved();
    List<TcpBootstrap> ranks = TcpRanks.create(4, within(8000));
    long start = System.nanoTime();
    List<CompletableFuture<Void>> waiting =
        onAll(List.of(ranks.get(0), ranks.get(2)), each -> each.initialize(address));
    for (CompletableFuture<Void> each : waiting) {
      assertThat(assertFails(each, Timeout.class, "[1, 3]").rank()).isEqualTo(1);
    }
    assertThat(Duration.ofNanos(System.nanoTime() - start))
        .isGreaterThanOrEqualTo(Duration.ofMillis(1000));
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  @Test
  void shouldNameTheRootWhenItIsMissing() {
    String address = "127.0.0.1:" + Ports.reserved();
    FluxCclException late = TcpRanks.failureOfJoining(address, Duration.ofSeconds(2));
    assertThat(late).isInstanceOf(Timeout.class).hasMessageContaining("no coordinator answers at");
    assertThat(late.rank()).isEqualTo(0);
  }

  @Test
  void shouldReportTheCauseIfTheRootCannotListen() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        TcpBootstrap root = TcpBootstrap.create(0, 2, OPTIONS)) {
      CompletableFuture<Void> joined = root.initialize("127.0.0.1:" + taken.getLocalPort());
      assertFails(joined, TransportFailure.class, "in use");
    }
  }

  @Test
  void shouldFailTheFutureIfTheEnvironmentNamesNoAddress() {
    Map<String, String> pod =
        Map.of("JOB_COMPLETION_INDEX", "0", "FLUXCCL_NRANKS", "2", "HOSTNAME", "node12");
    try (TcpBootstrap rank = TcpBootstrap.create(0, 2, OPTIONS)) {
      assertFails(rank.initialize(RankEnvironment.from(pod)), InvalidUsage.class, "FLUXCCL_ADDR");
    }
  }

  @Test
  void shouldCloseTheRootOfAnIdIfARankNamesAMissingInterface() {
    UniqueId id = TcpBootstrap.createUniqueId(OPTIONS);
    try (TcpBootstrap wrong =
        TcpBootstrap.create(0, 2, BootstrapOptions.builder().networkInterface("none0").build())) {
      assertFails(wrong.initialize(id), InvalidUsage.class, "none0");
    }
    List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
    await(onAll(ranks, each -> each.initialize(id)));
    gatherAndClose(ranks);
    Awaitility.await().until(() -> isClosed(id));
  }

  @Test
  void shouldCloseTheRootOfAnIdIfTheJoinedRankGivesUp() {
    UniqueId id = TcpBootstrap.createUniqueId(OPTIONS);
    try (TcpBootstrap rank = TcpBootstrap.create(0, 2, within(5000))) {
      assertThat(isClosed(id)).isFalse();
      assertFails(rank.initialize(id), Timeout.class, "[1] did not join");
    }
    Awaitility.await().until(() -> isClosed(id));
  }

  private static boolean isClosed(UniqueId id) {
    try (Socket socket = new Socket(id.address().getAddress(), id.address().getPort())) {
      return !socket.isConnected();
    } catch (IOException e) {
      return true;
    }
  }

  private static BootstrapOptions with(Map<String, String> settings) {
    return BootstrapOptions.builder().settings(settings).build();
  }

  @Test
  void shouldNameASettingThatDiffersBetweenRanks() {
    String address = "127.0.0.1:" + Ports.reserved();
    try (TcpBootstrap root = TcpBootstrap.create(0, 2, with(Map.of("CHECKS", "1", "LANES", "2")));
        TcpBootstrap wrong = TcpBootstrap.create(1, 2, with(Map.of("CHECKS", "0", "LANES", "2")));
        TcpBootstrap without = TcpBootstrap.create(1, 2, with(Map.of("CHECKS", "1")))) {
      CompletableFuture<Void> joined = root.initialize(address);
      assertFails(
          wrong.initialize(address), InvalidUsage.class, "CHECKS=0, but the job has CHECKS=1");
      assertFails(
          without.initialize(address), InvalidUsage.class, "LANES=unset, but the job has LANES=2");
      assertThat(joined).isNotDone();
    }
  }

  @Test
  void shouldRefuseSettingsThatAreTooLongToBeSent() {
    Map<String, String> many =
        IntStream.range(0, 33).boxed().collect(Collectors.toMap(each -> "x" + each, each -> ""));
    assertRefused(() -> with(many), "33 of them; give at most 32");
    assertRefused(() -> with(Map.of("x".repeat(65), "")), "has 65 bytes; give at most 64");
    assertRefused(() -> with(Map.of("x", "y".repeat(257))), "has 257 bytes; give at most 256");
  }

  @Test
  void shouldRefuseUseBeforeAndTwiceInitialize() {
    try (TcpBootstrap alone = TcpBootstrap.create(0, 1, OPTIONS)) {
      assertFails(alone.barrier(soon()), InvalidUsage.class);
      await(alone.initialize("127.0.0.1:0"));
      assertFails(alone.initialize("127.0.0.1:0"), InvalidUsage.class);
    }
  }

  @Test
  void shouldEndItsThreadIfItIsClosedWhileTheGroupForms() {
    for (int round = 0; round < 20; round++) {
      String address = "127.0.0.1:" + Ports.reserved();
      List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
      onAll(ranks, each -> each.initialize(address));
      LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(200 * round));
      ranks.get(round % 2).close();
      ranks.get(1 - round % 2).close();
      Awaitility.await().until(ranks.get(0).loop::isTerminated);
    }
  }

  @Test
  void shouldEndInitializeWhenItIsClosed() {
    TcpBootstrap lonely = TcpBootstrap.create(0, 2, OPTIONS);
    CompletableFuture<Void> waiting = lonely.initialize("127.0.0.1:" + Ports.reserved());
    lonely.close();
    assertThat(failureOf(waiting)).isInstanceOf(io.fluxccl.Aborted.class);
    assertThat(failureOf(lonely.send(0, 0, NOTHING, soon()))).isInstanceOf(FluxCclException.class);
  }

  @Test
  void shouldCountRanksByHost() {
    String address = "127.0.0.1:" + Ports.reserved();
    List<TcpBootstrap> ranks = new ArrayList<>();
    for (int rank = 0; rank < 4; rank++) {
      HostIdentity identity = HostIdentity.of("host " + rank / 3);
      ranks.add(
          TcpBootstrap.create(rank, 4, BootstrapOptions.builder().hostIdentity(identity).build()));
    }
    await(onAll(ranks, each -> each.initialize(address)));
    assertThat(ranks).extracting(Bootstrap::nRanksPerNode).containsExactly(3, 3, 3, 1);
    assertThat(ranks).extracting(Bootstrap::localRank).containsExactly(0, 1, 2, 0);
    assertThat(ranks.get(0).hostHash(3)).isNotEqualTo(ranks.get(0).hostHash(0));
    gatherAndClose(ranks);
  }

  /** The bound: set-up of 128 ranks takes less than 5 s. */
  @Tag("timed")
  @Test
  void shouldSetUp128RanksInOneJvmWithinFiveSeconds() {
    assertTakesLessThan(Duration.ofSeconds(5), TcpBootstrapTest::setUp128Ranks);
  }

  /** The bound: a barrier of 1024 ranks takes less than a second. */
  @Tag("timed")
  @Test
  void shouldHoldABarrierOf1024RanksInOneJvmWithinASecond() {
    List<TcpBootstrap> ranks =
        TcpRanks.byAddress(
            1024, BootstrapOptions.builder().timeout(Duration.ofSeconds(40)).build());
    try {
      assertTakesLessThan(Duration.ofSeconds(1), () -> barrier(ranks));
    } finally {
      await(onAll(ranks, TcpBootstrap::closeAsync));
    }
  }

  /** The bound: every rank learns of a death within a second. */
  @Tag("timed")
  @Test
  void shouldReportADeathToEveryRankWithinASecond() {
    assertTakesLessThan(Duration.ofSeconds(1), TcpBootstrapTest::reportOfADeath);
  }

  /** Returns the time from the death of rank 2 until all others have failed. */
  private static Duration reportOfADeath() {
    List<TcpBootstrap> ranks = TcpRanks.byAddress(4, OPTIONS);
    try {
      await(onAll(ranks, each -> each.barrier(soon())));
      long start = System.nanoTime();
      await(TcpRanks.kill(ranks.get(2)));
      for (int rank : new int[] {0, 1, 3}) {
        assertThat(await(ranks.get(rank).failure().copy()).rank()).isEqualTo(2);
      }
      return Duration.ofNanos(System.nanoTime() - start);
    } finally {
      await(onAll(ranks, TcpBootstrap::closeAsync));
    }
  }

  private static Duration barrier(List<TcpBootstrap> ranks) {
    long start = System.nanoTime();
    await(onAll(ranks, each -> each.barrier(Deadline.after(Duration.ofSeconds(40)))));
    return Duration.ofNanos(System.nanoTime() - start);
  }

  private static Duration setUp128Ranks() {
    long start = System.nanoTime();
    List<TcpBootstrap> ranks = TcpRanks.byAddress(128, OPTIONS);
    try {
      await(onAll(ranks, each -> each.allGather(new byte[64], soon())))
          .forEach(all -> assertThat(all).hasSize(128));
      await(onAll(ranks, each -> each.barrier(soon())));
      return Duration.ofNanos(System.nanoTime() - start);
    } finally {
      await(onAll(ranks, TcpBootstrap::closeAsync));
    }
  }
}
