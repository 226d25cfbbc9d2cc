// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * Stops ranks of jobs that work. They keep their ports, and answer nothing. The library's bound:
 * the other ranks all-reduce again within 2 s of their liveness limit.
 */
@Tag("faults")
@Tag("timed")
@Timeout(300)
@Isolated
class StoppedRankTest {
  private static final int LIVENESS_SECONDS = 2;
  private static final long BOUND_MILLIS = TimeUnit.SECONDS.toMillis(LIVENESS_SECONDS + 2);
  private static final Map<String, String> CONTINUES = Map.of("FLUXCCL_LEAST_RANKS", "1");
  private static final String SHRINKS = "shrinks";
  private static final String REPLACES = "replaces";
  private static final int PORT = 29_618;

  @TempDir private Path folder;
  private ProcessRanks.Builder job;
  private final List<ProcessRank> ranks = new ArrayList<>();

  /**
   * A rank that all-reduces in an endless loop. Prints "generation N of R ranks: SUM" after the
   * first all-reduce of each group. Admits processes that wait. Its job heals, or it shrinks its
   * group. A replacement prints "ready" when its classes are loaded, and joins after a line of
   * input.
   */
  static final class Rank {
    private static final long PAUSE_NANOS = 5_000_000;

    private Rank() {}

    public static void main(String[] arguments) throws IOException {
      List<String> words = List.of(arguments);
      try {
        if (words.contains(REPLACES)) {
          RankGroup.join(JoinOptions.of(0, 1)).join().close();
          System.out.println("ready");
          System.in.read();
        }
        if (words.contains(SHRINKS)) {
          shrink(RankGroup.fromEnvironment().join());
        } else {
          RankGroup.generations(JoinOptions.fromEnvironment())
              .switchMap(
                  group ->
                      Mono.fromRunnable(() -> work(group)).subscribeOn(Schedulers.boundedElastic()))
              .blockLast();
        }
      } catch (RuntimeException e) {
        FluxCclException failure = FluxCclException.from(e);
        System.out.println("failed " + failure.code() + " " + failure.getMessage());
      }
    }

    private static void shrink(RankGroup first) {
      RankGroup group = first;
      while (true) {
        work(group);
        group = group.shrink().join();
      }
    }

    private static void work(RankGroup group) {
      group.newcomers().doOnSuccess(waiting -> group.renew("a process waits")).subscribe();
      int all = group.nRanks();
      try (IntView one = group.device().allocateInts(1)) {
        for (int step = 0; ; step++) {
          one.put(0, 1);
          group.collectives().allReduce(one, one, ReduceOp.SUM).block();
          if (one.get(0) != all) {
            System.out.println("failed with the sum " + one.get(0));
          }
          if (step == 0) {
            long number = group.generation().number();
            System.out.printf("generation %d of %d ranks: %d%n", number, all, one.get(0));
          }
          LockSupport.parkNanos(PAUSE_NANOS);
        }
      } catch (RuntimeException e) {
        System.out.println("ended " + FluxCclException.from(e).getMessage());
      }
    }
  }

  @AfterEach
  void end() {
    ranks.forEach(ProcessRank::close);
  }

  private ProcessRanks.Builder job(int nRanks, Map<String, String> variables, String... arguments) {
    return TestJvms.withLog(nRanks, Rank.class, arguments)
        .failure("failed")
        .variables(Map.of("FLUXCCL_LIVENESS_TIMEOUT", "" + LIVENESS_SECONDS))
        .variables(variables);
  }

  /** Starts a job whose ranks are on one host, or with equal numbers on several. */
  private void start(int nRanks, int hosts, Map<String, String> variables, String... arguments) {
    start(
        nRanks,
        job(nRanks, variables, arguments).variablesByRank(rank -> on(rank * hosts / nRanks)));
  }

  private void start(int nRanks, ProcessRanks.Builder builder) {
    job = builder;
    for (int rank = 0; rank < nRanks; rank++) {
      ranks.add(job.startRank(rank));
    }
    awaitWork(ranks);
  }

  private Map<String, String> on(int host) {
    return Map.of(
        "FLUXCCL_HOSTID", "host" + host, SteadyJob.FOLDER, folder.resolve("" + host).toString());
  }

  private List<ProcessRank> select(String numbers) {
    return Stream.of(numbers.split(" ")).map(Integer::valueOf).map(ranks::get).toList();
  }

  /** Waits until these processes are all ranks of a group, and have all-reduced. */
  private static void awaitWork(List<ProcessRank> all) {
    String line = " of %1$d ranks: %1$d".formatted(all.size());
    all.forEach(rank -> rank.awaitLineWith(line));
  }

  private static void assertWorkInTime(List<ProcessRank> all, long sinceNanos) {
    awaitWork(all);
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sinceNanos);
    assertThat(millis).as(all.get(0).output()).isLessThan(BOUND_MILLIS);
  }

  /** Stops some ranks. Asserts that the others continue without them in time. */
  private static void stop(List<ProcessRank> victims, List<ProcessRank> others) {
    others.forEach(ProcessRank::forget);
    long stopped = System.nanoTime();
    victims.forEach(ProcessRank::stop);
    assertWorkInTime(others, stopped);
  }

  /**
   * Stops a rank, and lets a replacement join that is ready. Asserts that it and the others
   * all-reduce in time.
   *
   * @return the stopped rank, which the caller closes
   */
  private ProcessRank replaceStopped(int victim) {
    ProcessRank replacement = job.arguments(REPLACES).startRank(victim);
    ProcessRank stopped = ranks.set(victim, replacement);
    replacement.awaitLine("ready");
    ranks.forEach(ProcessRank::forget);
    long stoppedNanos = System.nanoTime();
    stopped.stop();
    replacement.sendLine("join");
    assertWorkInTime(ranks, stoppedNanos);
    return stopped;
  }

  /** Continues ranks that were stopped. All processes then are ranks of one group. */
  private void resume(List<ProcessRank> victims) {
    ranks.forEach(ProcessRank::forget);
    victims.forEach(ProcessRank::resume);
    awaitWork(ranks);
  }

  @ParameterizedTest(name = "{0} ranks, of which ranks {1} stop one after the other")
  @CsvSource({"2, 0", "2, 1", "3, 0 1", "3, 2", "4, 0 2", "4, 3 0 1"})
  void shouldContinueWithoutStoppedRanksAndAdmitThemAgain(int nRanks, String stopped) {
    start(nRanks, 1, CONTINUES);
    List<ProcessRank> left = new ArrayList<>(ranks);
    for (ProcessRank victim : select(stopped)) {
      left.remove(victim);
      stop(List.of(victim), left);
    }
    resume(select(stopped));
  }

  @ParameterizedTest(name = "ranks {0} of hosts (0, 1) and (2, 3) stop at once")
  @ValueSource(strings = {"0", "3", "0 2", "2 3"})
  void shouldContinueOnTheHostsThatHaveMostVotesOrHalfWithTheLowestRank(String stopped) {
    start(4, 2, CONTINUES);
    List<ProcessRank> left = new ArrayList<>(ranks);
    left.removeAll(select(stopped));
    stop(select(stopped), left);
    resume(select(stopped));
  }

  @Test
  void shouldEndTheHalfWithoutTheLowestRankAfterTheJoinTimeout() {
    start(4, 2, Map.of("FLUXCCL_LEAST_RANKS", "1", "FLUXCCL_JOIN_TIMEOUT", "10"));
    select("0 1").forEach(ProcessRank::stop);
    List<ProcessRank> half = select("2 3");
    List<String> ends = half.stream().map(rank -> rank.awaitLine("failed TIMEOUT")).toList();
    assertThat(ends).allMatch(end -> end.contains("generation 2 did not form within 10000 ms"));
    // The other rank may have lost its coordinator just before.
    assertThat(ends)
        .anyMatch(end -> end.contains("hosts of ranks [0, 1] don't answer"))
        .anyMatch(end -> end.contains("2 of 4 votes"));
    half.forEach(ProcessRank::end);
    select("0 1").forEach(ProcessRank::resume);
    awaitWork(select("0 1"));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 2})
  void shouldReplaceAStoppedRankWhichReplacesAnotherOneLater(int victim) {
    start(3, 1, Map.of());
    try (ProcessRank stopped = replaceStopped(victim)) {
      stopped.resume();
      stopped.awaitLine("ended");
      ranks.set(victim, stopped).kill();
      ranks.forEach(ProcessRank::forget);
      awaitWork(ranks);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldShrinkWithoutAStoppedRankWhichNamesTheGenerationThatItMissed(int victim) {
    start(3, 1, Map.of(), SHRINKS);
    List<ProcessRank> left = new ArrayList<>(ranks);
    left.remove(victim);
    stop(List.of(ranks.get(victim)), left);
    ranks.get(victim).resume();
    assertThat(ranks.get(victim).awaitLine("failed")).contains("ABORTED", "generation 2");
  }

  /** Rank 0 is on one host, the others on another one. */
  @Test
  void shouldFindTheJobAtItsSecondAddressWhileTheProcessAtTheFirstIsStopped() {
    try (TwoHosts hosts = TwoHosts.routed()) {
      String addresses = "%s:%d,%s:%d".formatted(hosts.address(0), PORT, hosts.address(1), PORT);
      start(
          3,
          job(3, Map.of("FLUXCCL_ADDR", addresses))
              .prefixByRank(rank -> hosts.inside(rank == 0 ? 0 : 1))
              .variablesByRank(rank -> on(rank == 0 ? 0 : 1)));
      // The replacement has a folder of its own, so it doesn't read the files of the others.
      job.prefixByRank(rank -> hosts.inside(1)).variablesByRank(rank -> on(2));
      replaceStopped(0).close();
      end();
    }
  }
}
