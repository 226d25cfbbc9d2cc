package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A rank is killed while it joins, at a random moment, or just after that. The others, which are
 * ranks of this JVM, learn which one it was. {@code -Dfluxccl.setup.kills} is how often.
 */
@Tag("faults")
@Timeout(1800)
class SetUpKillsTest {
  private static final int KILLS = Integer.getInteger("fluxccl.setup.kills", 100);
  private static final int RANKS = 3;
  private static final Duration LIMIT = Duration.ofSeconds(6);

  /** Two seconds on a machine of its own. */
  private static final long SOON_MILLIS = 5_000;

  private static final int SPREAD_MILLIS = 800;

  private final Random random = new Random(3);
  private final List<Long> millis = Collections.synchronizedList(new ArrayList<>());
  private final List<String> wrong = Collections.synchronizedList(new ArrayList<>());
  private volatile int unseen;

  /** How long the first process took to join, which was killed after that. */
  private long joinMillis;

  @Test
  void shouldTellTheOthersWhichRankHasDied() throws Exception {
    for (int round = 0; round < KILLS; round++) {
      kill(round, round % RANKS);
      assertThat(wrong).as("round " + round).isEmpty();
    }
    Collections.sort(millis);
    System.out.printf(
        "%d kills; of %d survivors %d were told, after %d ms (median), %d ms (worst)%n",
        KILLS,
        millis.size() + unseen,
        millis.size(),
        millis.get(millis.size() / 2),
        millis.get(millis.size() - 1));
    // The root hears of a rank when it connects; before that only its absence can be told.
    assertThat(millis).hasSizeGreaterThan(unseen);
  }

  private void kill(int round, int victim) throws Exception {
    int port;
    try (ServerSocket probe = new ServerSocket(0)) {
      port = probe.getLocalPort();
    }
    JobSecret secret = JobSecret.random();
    String address = "127.0.0.1:" + port;
    Map<String, String> variables =
        Map.of(
            "FLUXCCL_RANK", Integer.toString(victim),
            "FLUXCCL_NRANKS", Integer.toString(RANKS),
            "FLUXCCL_ADDR", address,
            "FLUXCCL_SECRET", secret.text());
    List<CompletableFuture<Void>> told = new ArrayList<>();
    CompletableFuture<Long> killed = new CompletableFuture<>();
    try (RankProcess process = new RankProcess(SteadyRank.class, List.of(), variables)) {
      process.awaitLine("joining");
      long joining = System.nanoTime();
      for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
          JoinOptions options =
              JoinOptions.of(rank, RANKS)
                  .withAddress(address)
                  .withSecret(secret)
                  .withJoinTimeout(LIMIT);
          told.add(
              CompletableFuture.runAsync(
                      () -> {},
                      CompletableFuture.delayedExecutor(
                          random.nextInt(SPREAD_MILLIS), TimeUnit.MILLISECONDS))
                  .thenCompose(begun -> survive(round, options, victim, killed)));
        }
      }
      if (round == 0) {
        process.awaitLine("joined");
        joinMillis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - joining);
      } else {
        // Most ranks have connected to the root by half of that.
        Thread.sleep(joinMillis / 2 + random.nextInt(2 * SPREAD_MILLIS));
      }
      process.kill();
      killed.complete(System.nanoTime());
    }
    for (CompletableFuture<Void> each : told) {
      each.get(60, TimeUnit.SECONDS);
    }
  }

  /** Joins, and completes when this rank knows what has become of the victim. */
  private CompletableFuture<Void> survive(
      int round, JoinOptions options, int victim, CompletableFuture<Long> killed) {
    long began = System.nanoTime();
    return RankGroup.join(options)
        .thenCompose(
            group ->
                group
                    .communicator()
                    .failed()
                    .orTimeout(LIMIT.toMillis(), TimeUnit.MILLISECONDS)
                    .whenComplete((reason, error) -> group.close()))
        .handle((reason, error) -> reason != null ? reason : FluxCclException.from(error))
        .thenCombine(
            killed,
            (reason, when) -> {
              judge(round, reason, victim, Math.max(began, when));
              return null;
            });
  }

  private void judge(int round, FluxCclException reason, int victim, long sinceNanos) {
    long after = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sinceNanos);
    if (reason.code() == ErrorCode.TIMEOUT && reason.rank() == victim) {
      unseen++;
    } else if (reason.code() != ErrorCode.REMOTE_FAILURE
        || reason.rank() != victim
        || after > SOON_MILLIS) {
      wrong.add("round " + round + ", rank " + victim + " killed, after " + after + ": " + reason);
    } else {
      millis.add(Math.max(0, after));
    }
  }
}
