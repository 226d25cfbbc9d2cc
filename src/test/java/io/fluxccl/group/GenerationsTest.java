// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.group.Groups.assertCompletes;
import static io.fluxccl.group.Groups.assertWorks;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.Groups.Place;
import io.fluxccl.testing.Rounds;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.Disposable;

@Timeout(120)
class GenerationsTest {
  private static final int RANKS = 3;

  private final Place place = Place.free();
  private final List<Process> processes = new ArrayList<>();

  /** Stands for a process of the job, inside this JVM. */
  private static final class Process {
    final BlockingQueue<RankGroup> groups = new LinkedBlockingQueue<>();
    final CompletableFuture<Void> end = new CompletableFuture<>();
    final Disposable subscription;

    Process(JoinOptions options) {
      subscription =
          RankGroup.generations(options)
              .subscribe(groups::add, end::completeExceptionally, () -> end.complete(null));
    }

    RankGroup next() throws InterruptedException {
      RankGroup group = groups.poll(LONG.toSeconds(), TimeUnit.SECONDS);
      assertThat(group).as("the next generation, or %s", end).isNotNull();
      return group;
    }
  }

  @AfterEach
  void close() {
    processes.forEach(process -> process.subscription.dispose());
  }

  private JoinOptions options(int rank) {
    return place.options(rank, RANKS);
  }

  private Process start(JoinOptions options) {
    Process process = new Process(options);
    processes.add(process);
    return process;
  }

  private List<Process> startAll(int leastRanks) {
    for (int rank = 0; rank < RANKS; rank++) {
      start(options(rank).withLeastRanks(leastRanks));
    }
    return new ArrayList<>(processes);
  }

  private static List<RankGroup> next(List<Process> of) throws InterruptedException {
    List<RankGroup> groups = new ArrayList<>();
    for (Process process : of) {
      groups.add(process.next());
    }
    return groups;
  }

  @Test
  void shouldStartTheNextGenerationWithAllRanksAfterAFailure() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> first = next(all);
    assertThat(first.get(1).generation())
        .isEqualTo(new Generation(1, List.of(-1, -1, -1), java.util.Optional.empty()));
    assertWorks(first);
    first.get(1).communicator().abort(new Aborted(1, "out of order"));
    List<RankGroup> second = next(all);
    Generation generation = second.get(2).generation();
    assertThat(generation.number()).isEqualTo(2);
    assertThat(generation.previousRanks()).containsExactly(0, 1, 2);
    assertThat(generation.cause().map(FluxCclException::getMessage).orElse(""))
        .contains("out of order")
        .contains("chat");
    assertWorks(second);
  }

  @Test
  void shouldKeepTheDeviceAndItsBuffersInTheNextGeneration() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> first = next(all);
    try (FloatView weights = first.get(0).device().allocateFloats(16)) {
      weights.put(15, 42);
      first.get(0).renew("a test");
      List<RankGroup> second = next(all);
      assertThat(second.get(0).device()).isSameAs(first.get(0).device());
      assertThat(weights.get(15)).isEqualTo(42);
      assertThatThrownBy(() -> first.get(0).collectives().barrier().block(LONG))
          .hasMessageContaining("ends generation 1: a test");
      assertWorks(second);
    }
  }

  @ParameterizedTest(name = "rank {0} leaves")
  @ValueSource(ints = {0, 2})
  void shouldContinueWithFewerRanksAndGrowAgain(int gone) throws Exception {
    List<Process> all = startAll(1);
    List<RankGroup> first = next(all);
    Process leaver = all.remove(gone);
    first.get(gone).communicator().abort(new Aborted(gone, "leaving"));
    leaver.subscription.dispose();
    List<RankGroup> second = next(all);
    assertThat(second.get(0).generation().previousRanks())
        .containsExactlyElementsOf(gone == 0 ? List.of(1, 2) : List.of(0, 1));
    assertWorks(second);
    all.add(start(options(gone).withLeastRanks(1)));
    assertCompletes(second.get(1).newcomers());
    second.get(1).renew("to let a newcomer in");
    List<RankGroup> third = next(all);
    assertThat(third.get(2).generation().previousRanks()).containsExactly(0, 1, -1);
    assertWorks(third);
  }

  @Test
  void shouldLetAStandbyWaitBeyondTheJoinTimeoutWhileAGenerationRuns() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> first = next(all);
    Process spare = start(options(1).withJoinTimeout(Duration.ofSeconds(2)));
    assertThatThrownBy(() -> spare.end.get(3, TimeUnit.SECONDS))
        .isInstanceOf(TimeoutException.class);
    assertWorks(first);
    all.get(1).subscription.dispose();
    first.get(0).renew("rank 1 has left");
    all.set(1, spare);
    List<RankGroup> second = next(all);
    assertThat(second.get(1).generation().previousRanks()).containsExactly(0, -1, 2);
    assertWorks(second);
  }

  @Test
  void shouldWaitForAReplacementWhichGetsTheFreeRank() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> first = next(all);
    first.get(1).communicator().abort(new Aborted(1, "leaving"));
    all.get(1).subscription.dispose();
    all.set(1, start(options(1)));
    List<RankGroup> second = next(all);
    assertThat(second.get(0).generation().previousRanks()).containsExactly(0, -1, 2);
    assertThat(second.get(1).generation().cause()).isEmpty();
    assertWorks(second);
  }

  @Test
  void shouldRefuseAReplacementWithOtherOptionsAloneAndTakeTheNextOne() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> first = next(all);
    JoinOptions wrong = options(1).withCollectives(CollectivesOptions.DEFAULT.withChecks(true));
    assertRefusedByTheJob(wrong); // while a generation runs
    first.get(1).communicator().abort(new Aborted(1, "leaving"));
    all.get(1).subscription.dispose();
    assertRefusedByTheJob(wrong); // while the next one waits for a replacement
    all.set(1, start(options(1)));
    List<RankGroup> second = next(all);
    assertThat(second.get(0).generation().previousRanks()).containsExactly(0, -1, 2);
    assertWorks(second);
  }

  private void assertRefusedByTheJob(JoinOptions wrong) {
    assertFails(
        start(wrong).end,
        InvalidUsage.class,
        "FLUXCCL_CHECKS=1",
        "the job has FLUXCCL_CHECKS=0",
        "rank 1 of 3",
        "chat");
  }

  @Test
  void shouldNotLeakAcrossGenerations() throws Exception {
    List<Process> all = startAll(0);
    List<RankGroup> groups = next(all);
    for (int i = 0; i < 5; i++) {
      groups = renewed(all, groups);
    }
    long before = descriptors();
    long threadsBefore = threads();
    for (int i = 0; i < Rounds.of(8, 20); i++) {
      groups = renewed(all, groups);
    }
    // Failed groups are closed asynchronously, after the next one has started.
    await().atMost(LONG).untilAsserted(() -> assertThat(descriptors()).isLessThan(before + 10));
    await().atMost(LONG).untilAsserted(() -> assertThat(threads()).isLessThan(threadsBefore + 10));
  }

  private static List<RankGroup> renewed(List<Process> all, List<RankGroup> groups)
      throws InterruptedException {
    assertWorks(groups);
    groups.get(0).renew("a test");
    return next(all);
  }

  private static long descriptors() throws IOException {
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.count();
    }
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> !thread.getName().startsWith("fluxccl-blocking"))
        .count();
  }

  @Test
  void shouldEndWhenTheGroupsAreClosed() throws Exception {
    List<Process> all = startAll(1);
    next(all).forEach(RankGroup::closeAsync);
    Groups.assertAllSucceed(all.stream().map(process -> process.end).toList());
  }

  @ParameterizedTest
  @CsvSource({"0, 'ranks [1, 2] did not join'", "1, no coordinator answers at [/127.0.0.1:"})
  void shouldNameMissingRanksOrTheAddressIfJoiningTimesOut(int rank, String reason) {
    JoinOptions options = options(rank).withJoinTimeout(Duration.ofSeconds(2));
    assertFails(start(options).end, io.fluxccl.Timeout.class, "of 3", reason, "chat");
  }

  @Test
  void shouldReportAForeignServiceAtTheJobsAddress() throws IOException {
    try (ServerSocket other = new ServerSocket(place.port(), 1, InetAddress.getLoopbackAddress())) {
      CompletableFuture.runAsync(() -> answerLikeAWebServer(other));
      JoinOptions options = options(1).withJoinTimeout(Duration.ofSeconds(2));
      assertFails(start(options).end, FluxCclException.class, "HTTP", "chat");
    }
  }

  private static void answerLikeAWebServer(ServerSocket server) {
    while (!server.isClosed()) {
      try (Socket client = server.accept()) {
        client.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(US_ASCII));
      } catch (IOException e) {
        return; // the test has ended
      }
    }
  }

  @Test
  void shouldWaitForTheAddressOfAHostThatHasNoneYet() {
    JoinOptions options =
        options(0).withAddress("nowhere.invalid:29500").withJoinTimeout(Duration.ofSeconds(3));
    assertFails(start(options).end, InvalidUsage.class, "the host is unknown", "chat");
  }

  @Test
  void shouldRefuseARankOfAJobOfAnotherSize() throws Exception {
    startAll(0);
    Process other = start(place.options(3, 4));
    assertFails(other.end, InvalidUsage.class, "nRanks=4", "the job has nRanks=3");
  }
}
