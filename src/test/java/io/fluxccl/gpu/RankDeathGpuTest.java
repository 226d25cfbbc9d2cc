// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.group.LongRun;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.IOException;
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

  /** The bound: every other rank learns of a death within a second. */
  @Tag("timed")
  @Test
  @RequiresGpus(2)
  @Timeout(value = 30, unit = TimeUnit.MINUTES)
  void shouldEndEveryOtherRankWithinASecondAndLetTheNextJobRun() throws Exception {
    Random random = new Random(SEED);
    try (ProcessRanks ranks =
        TestJvms.of(RANKS, LongRun.class, LongRun.SERVE)
            .jvmOptions("-Xmx512m")
            .variables(Map.of("FLUXCCL_DEVICE", "cuda"))
            .start()) {
      for (int round = 0; round < ROUNDS; round++) {
        int victim = random.nextInt(RANKS);
        String transport = round % 4 == 3 ? "ETHERNET" : "auto";
        long millis = killOne(ranks, victim, transport, random);
        assertThat(millis).as("round %d over %s", round, transport).isLessThan(MOST_MILLIS);
        System.out.printf("round %d: rank %d killed, %d ms%n", round, victim, millis);
        ranks.replace(victim);
      }
    }
  }

  /** Runs one job, which ends with a death; the survivors are ready for the next. */
  private static long killOne(ProcessRanks ranks, int victim, String transport, Random random)
      throws IOException {
    String job = "127.0.0.1:" + Ports.reserved() + " " + JobSecret.random().text();
    for (ProcessRank rank : ranks.all()) {
      rank.forget();
      rank.sendLine(String.join(" ", "" + rank.rank(), "" + RANKS, job, transport));
    }
    ranks.all().forEach(rank -> rank.awaitLine("running"));
    LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(300_000)));
    long killed = System.nanoTime();
    ranks.get(victim).kill();
    long slowest = 0;
    for (ProcessRank rank : ranks.all()) {
      if (rank.rank() != victim) {
        Matcher failed = FAILED.matcher(rank.awaitLine("failed "));
        assertThat(failed.find()).as(rank.output()).isTrue();
        assertThat(failed.group(1)).as(rank.output()).isEqualTo("REMOTE_FAILURE");
        assertThat(failed.group(2)).as(rank.output()).isEqualTo("" + victim);
        long nanos = Long.parseLong(failed.group(3)) - killed;
        slowest = Math.max(slowest, TimeUnit.NANOSECONDS.toMillis(nanos));
        rank.awaitLine("closed");
      }
    }
    return slowest;
  }
}
