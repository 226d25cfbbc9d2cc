// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.net.ServerSocket;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Four processes all-reduce on GPUs, one is killed at a random moment: the others learn of it, and
 * the next job runs at once. {@code -Dfluxccl.kill.rounds=100} for the long version.
 */
@Tag("multiprocess")
class RankDeathGpuTest {
  private static final int RANKS = 4;
  private static final int ROUNDS = Integer.getInteger("fluxccl.kill.rounds", 3);
  private static final long SEED = Long.getLong("fluxccl.kill.seed", 1);
  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");
  private static final long MOST_MILLIS = 1000;

  /** Number of processes that are started in advance: starting one takes longer than a round. */
  private static final int AHEAD = 4;

  private static ProcessRank start(int rank) {
    return TestJvms.of(RANKS, GpuLongRun.class, Integer.toString(rank), Integer.toString(RANKS))
        .jvmOptions("-Xmx512m")
        .variables(Map.of("FLUXCCL_DEVICE", "cuda"))
        .startRank(rank);
  }

  private static String newJob(String transport) throws IOException {
    try (ServerSocket probe = new ServerSocket(0)) {
      return "127.0.0.1:"
          + probe.getLocalPort()
          + " "
          + JobSecret.random().text()
          + " "
          + transport;
    }
  }

  /** Returns the match of the first matching line; fails with all output if none matches. */
  private static Matcher await(ProcessRank rank, Pattern pattern, String about) throws Exception {
    StringBuilder before = new StringBuilder(about).append(", waiting for ").append(pattern);
    for (String line = rank.readLine(); line != null; line = rank.readLine()) {
      Matcher matcher = pattern.matcher(line);
      if (matcher.find()) {
        return matcher;
      }
      before.append('\n').append(line);
    }
    throw new AssertionError(before.append("\n(the process ended)").toString());
  }

  /** The bound: every other rank learns of a death within a second. */
  @Tag("timed")
  @Test
  @RequiresGpus(2)
  @Timeout(value = 30, unit = TimeUnit.MINUTES)
  void shouldEndEveryOtherRankWithinASecondAndLetTheNextJobRun() throws Exception {
    Random random = new Random(SEED);
    int[] victims = random.ints(ROUNDS, 0, RANKS).toArray();
    List<ProcessRank> all = new ArrayList<>();
    ProcessRank[] ranks = new ProcessRank[RANKS];
    Deque<ProcessRank> successors = new ArrayDeque<>();
    long slowest = 0;
    try {
      for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = start(rank);
        all.add(ranks[rank]);
      }
      for (int round = 0; round < ROUNDS; round++) {
        while (successors.size() < AHEAD && round + successors.size() < ROUNDS) {
          successors.add(start(victims[round + successors.size()]));
          all.add(successors.getLast());
        }
        String transport = round % 4 == 3 ? "ETHERNET" : "auto";
        String about = "round " + round + " over " + transport + ", rank ";
        long millis = killOne(ranks, victims[round], newJob(transport), random, about);
        assertThat(millis).as(about + "slowest").isLessThan(MOST_MILLIS);
        System.out.printf("round %d: rank %d killed, %d ms%n", round, victims[round], millis);
        slowest = Math.max(slowest, millis);
        ranks[victims[round]] = successors.remove();
      }
    } finally {
      for (ProcessRank process : all) {
        process.kill();
      }
    }
    System.out.printf("%d kills; the slowest answer came after %d ms%n", ROUNDS, slowest);
  }

  /** One job, which ends with a death; the survivors are ready for the next. */
  private static long killOne(
      ProcessRank[] ranks, int victim, String job, Random random, String about) throws Exception {
    for (ProcessRank rank : ranks) {
      rank.sendLine(job);
    }
    for (int rank = 0; rank < RANKS; rank++) {
      await(ranks[rank], Pattern.compile("^running"), about + rank);
    }
    LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(300_000)));
    long killed = System.nanoTime();
    ranks[victim].kill();
    long slowest = 0;
    for (int rank = 0; rank < RANKS; rank++) {
      if (rank != victim) {
        Matcher failed = await(ranks[rank], FAILED, about + rank);
        assertThat(failed.group(1)).as(about + rank).isEqualTo("REMOTE_FAILURE");
        assertThat(failed.group(2)).as(about + rank).isEqualTo(Integer.toString(victim));
        long millis = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(failed.group(3)) - killed);
        slowest = Math.max(slowest, millis);
        await(ranks[rank], Pattern.compile("^closed"), about + rank);
      }
    }
    return slowest;
  }
}
