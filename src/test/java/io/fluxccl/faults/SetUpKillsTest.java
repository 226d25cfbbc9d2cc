// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Parallel;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Kills a rank just after it has joined, and in every other round at a random moment of its
 * joining, {@code -Dfluxccl.setup.kills} times in all. The library's bound: the other ranks, which
 * run in this JVM, get an error that names the dead rank within seconds.
 */
@Tag("faults")
@Tag("timed")
@Timeout(1200)
@Isolated
class SetUpKillsTest {
  private static final int KILLS = Integer.getInteger("fluxccl.setup.kills", Rounds.of(20, 100));
  private static final int RANKS = 3;

  /**
   * Set-up timeout if the victim may die before it connects: the others then wait this long for it.
   */
  private static final Duration LIMIT = Duration.ofSeconds(6);

  /** Set-up timeout if the victim joins; long enough for a busy machine. */
  private static final Duration LONG_LIMIT = Duration.ofSeconds(60);

  private static final int PATIENCE_SECONDS = 60;

  /** Jobs run in parallel; each mostly waits, for its kill or for its timeout. */
  private static final int AT_ONCE = 4;

  /** The bound for nine survivors in ten. */
  private static final long SOON_MILLIS = 2_000;

  /** The bound for all survivors; four jobs run at once. */
  private static final long LATE_MILLIS = 5_000;

  private static final int SPREAD_MILLIS = 800;

  private final Random random = new Random(Rounds.SEED);
  private final List<Long> millis = Collections.synchronizedList(new ArrayList<>());
  private final List<String> wrong = Collections.synchronizedList(new ArrayList<>());
  private final AtomicInteger unseen = new AtomicInteger();

  /** Time that a process takes to join in the first round, on an idle machine. */
  private final AtomicLong joinMillis = new AtomicLong();

  @Test
  void shouldNameTheDeadRankToTheSurvivors() throws Exception {
    kill(0);
    Parallel.forEach(LongStream.range(1, KILLS), AT_ONCE, round -> kill((int) round));
    assertThat(wrong).isEmpty();
    Collections.sort(millis);
    System.out.printf(
        "%d kills, seed %d; of %d survivors %d got the error, after %d ms (median), %d ms (worst)%n",
        KILLS,
        Rounds.SEED,
        millis.size() + unseen.get(),
        millis.size(),
        millis.get(millis.size() / 2),
        millis.get(millis.size() - 1));
    assertThat(millis.get(millis.size() * 9 / 10)).isLessThan(SOON_MILLIS);
  }

  private Void kill(int round) throws Exception {
    int victim = round % RANKS;
    boolean joined = round % 2 == 0;
    ProcessRanks.Builder job =
        TestJvms.withLog(RANKS, AllReduceLoopRank.class, "100003").failure("failed");
    List<CompletableFuture<Failure>> failures = new ArrayList<>();
    long begun;
    long ended;
    try (ProcessRank process = job.startRank(victim)) {
      process.awaitLine("joining");
      long joining = System.nanoTime();
      for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
          JoinOptions options = job.joinOptions(rank).withJoinTimeout(joined ? LONG_LIMIT : LIMIT);
          Executor later =
              CompletableFuture.delayedExecutor(
                  random.nextInt(SPREAD_MILLIS), TimeUnit.MILLISECONDS);
          failures.add(
              CompletableFuture.supplyAsync(() -> survive(options), later)
                  .thenCompose(failure -> failure));
        }
      }
      if (joined) {
        process.awaitLine("joined");
        joinMillis.compareAndSet(0, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - joining));
        Thread.sleep(random.nextInt(SPREAD_MILLIS));
      } else {
        Thread.sleep(random.nextInt(SPREAD_MILLIS + joinMillis.intValue()));
      }
      begun = System.nanoTime();
      process.kill();
      ended = System.nanoTime();
    }
    for (CompletableFuture<Failure> each : failures) {
      judge(round, each.get(2 * PATIENCE_SECONDS, TimeUnit.SECONDS), victim, begun, ended);
    }
    return null;
  }

  /** Joins, and completes when this rank has failed. */
  private static CompletableFuture<Failure> survive(JoinOptions options) {
    long began = System.nanoTime();
    return RankGroup.join(options)
        .thenCompose(
            group ->
                group
                    .communicator()
                    .failed()
                    .orTimeout(PATIENCE_SECONDS, TimeUnit.SECONDS)
                    .whenComplete((reason, error) -> group.close()))
        .handle((reason, error) -> reason != null ? reason : FluxCclException.from(error))
        .thenApply(reason -> new Failure(reason, began, System.nanoTime()));
  }

  private record Failure(FluxCclException reason, long beganNanos, long atNanos) {}

  /** Judges the failure of a survivor of a kill that began and ended at these times. */
  private void judge(int round, Failure failure, int victim, long begun, long ended) {
    FluxCclException reason = failure.reason;
    long since = Math.max(failure.beganNanos, ended);
    long after = TimeUnit.NANOSECONDS.toMillis(failure.atNanos - since);
    // On a busy machine a timeout may expire before the kill: the error then does not concern the
    // kill.
    boolean early = failure.atNanos < begun;
    // The root knows a rank after it has connected; before, it can only report the rank as missing.
    // A survivor ends when it gets the error. The root then reports it as missing, too.
    boolean absent =
        reason.code() == ErrorCode.TIMEOUT && (reason.rank() == victim || missed(reason, victim));
    if (round % 2 != 0 && (early || absent)) {
      unseen.incrementAndGet();
    } else if (reason.code() != ErrorCode.REMOTE_FAILURE
        || reason.rank() != victim
        || after > LATE_MILLIS) {
      wrong.add("round " + round + ", rank " + victim + " killed, after " + after + ": " + reason);
    } else {
      millis.add(Math.max(0, after));
    }
  }

  private static boolean missed(FluxCclException reason, int rank) {
    return reason
        .getMessage()
        .matches("(?s).*ranks \\[[\\d, ]*\\b" + rank + "\\b.*] did not join.*");
  }
}
