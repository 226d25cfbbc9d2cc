// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.group.LongRun;
import io.fluxccl.testing.RankPool;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Kills ranks of running jobs, {@code -Dfluxccl.kill.rounds} times over each transport. The
 * library's bound: the other ranks get an error that names the dead rank within a second. Nothing
 * of the job is left in them, and they are ranks of the next job.
 */
@Tag("faults")
@Tag("timed")
@Timeout(1200)
@Isolated
class KillsTest {
  private static final int ROUNDS = Integer.getInteger("fluxccl.kill.rounds", Rounds.of(10, 50));
  private static final int RANKS = 3;
  private static final int SPARES = 2;

  /** Four ranks, two on each of two hosts. */
  private static final String TWO_HOSTS = "hosts";

  private static final int RANKS_ON_TWO_HOSTS = 4;

  /** The bound for all but one survivor in twenty. */
  private static final long SOON_MILLIS = 1_000;

  /** The bound for all survivors. */
  private static final long LATE_MILLIS = 3_000;

  private static final int SPREAD_NANOS = 40_000_000;

  private final Random random = new Random(Rounds.SEED);

  @ParameterizedTest
  @ValueSource(strings = {"auto", "ETHERNET", "NET", TWO_HOSTS})
  void shouldEndEveryOtherRankWithinASecondWhenOneIsKilled(String kind) throws Exception {
    boolean twoHosts = kind.equals(TWO_HOSTS);
    int nRanks = twoHosts ? RANKS_ON_TWO_HOSTS : RANKS;
    int hosts = twoHosts ? 2 : 1;
    List<RankPool.Death> deaths = new ArrayList<>();
    try (RankPool pool =
        new RankPool(
            TestJvms.withLog(nRanks + SPARES, LongRun.class, LongRun.SERVE)
                // FluxCCL's own network over TCP, whatever plug-ins this machine has.
                .variables(Map.of("NCCL_NET_PLUGIN", "none", "NCCL_NET", "fluxccl")),
            hosts)) {
      for (int round = 0; round < ROUNDS; round++) {
        int victim = round % nRanks;
        deaths.addAll(
            pool.kill(nRanks, nRanks / hosts, kind, victim, random.nextInt(SPREAD_NANOS)));
      }
      pool.assertNothingIsLeft();
    }
    long[] millis = deaths.stream().mapToLong(RankPool.Death::millis).sorted().toArray();
    System.out.printf(
        "%s: %d kills, seed %d; survivors got the error after %d ms (median), %d ms (worst)%n",
        kind, ROUNDS, Rounds.SEED, millis[millis.length / 2], millis[millis.length - 1]);
    long[] afterEnd = deaths.stream().mapToLong(RankPool.Death::millisAfterEnd).sorted().toArray();
    assertThat(afterEnd[afterEnd.length * 19 / 20]).isLessThan(SOON_MILLIS);
    assertThat(afterEnd[afterEnd.length - 1]).isLessThan(LATE_MILLIS);
  }
}
