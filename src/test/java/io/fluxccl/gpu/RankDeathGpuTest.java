// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.group.LongRun;
import io.fluxccl.testing.RankPool;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.TestJvms;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
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
  private static final long MOST_MILLIS = 1000;
  private static final int SPREAD_NANOS = 300_000_000;

  /** Number of processes that are started in advance: starting one takes longer than a round. */
  private static final int AHEAD = 4;

  /** The bound: every other rank learns of a death within a second. */
  @Tag("timed")
  @Test
  @RequiresGpus(2)
  @Timeout(value = 30, unit = TimeUnit.MINUTES)
  void shouldEndEveryOtherRankWithinASecondAndLetTheNextJobRun() throws Exception {
    Random random = new Random(SEED);
    long slowest = 0;
    try (RankPool pool =
        new RankPool(
            TestJvms.withLog(RANKS + AHEAD, LongRun.class, LongRun.SERVE)
                .jvmOptions("-Xmx512m")
                .variables(Map.of("FLUXCCL_DEVICE", "cuda")),
            1)) {
      for (int round = 0; round < ROUNDS; round++) {
        String transport = round % 4 == 3 ? "ETHERNET" : "auto";
        int victim = random.nextInt(RANKS);
        for (RankPool.Death death :
            pool.kill(RANKS, RANKS, transport, victim, random.nextInt(SPREAD_NANOS))) {
          assertThat(death.millis()).as("round " + round).isLessThan(MOST_MILLIS);
          slowest = Math.max(slowest, death.millis());
        }
      }
      pool.assertNothingIsLeft();
    }
    System.out.printf("%d kills; the slowest answer came after %d ms%n", ROUNDS, slowest);
  }
}
