// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
  private static final long LATE_NANOS = TimeUnit.SECONDS.toNanos(3);

  private static final int SPREAD_MILLIS = 40;
  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");

  private final Random random = new Random(Rounds.SEED);

  /** Milliseconds from the kill until a survivor got the error. */
  private final List<Long> millis = new ArrayList<>();

  /** Milliseconds from the end of the killed process until a survivor got the error. */
  private final List<Long> afterEnd = new ArrayList<>();

  @ParameterizedTest
  @ValueSource(strings = {"auto", "ETHERNET", "NET", TWO_HOSTS})
  void shouldEndEveryOtherRankWithinASecondWhenOneIsKilled(String kind) throws Exception {
    boolean twoHosts = kind.equals(TWO_HOSTS);
    int nRanks = twoHosts ? RANKS_ON_TWO_HOSTS : RANKS;
    int hosts = twoHosts ? 2 : 1;
    try (RankPool pool = new RankPool(hosts, nRanks / hosts + SPARES / hosts)) {
      for (int round = 0; round < ROUNDS; round++) {
        kill(pool, kind, nRanks, round);
      }
      for (FaultRankProcess each : pool.idle()) {
        assertThat(each.process().end()).isZero();
      }
      assertThat(pool.all())
          .allSatisfy(each -> assertThat(ResourceLeaks.segmentsOf(each.process().pid())).isEmpty());
    }
    Collections.sort(millis);
    System.out.printf(
        "%s: %d kills, seed %d; survivors got the error after %d ms (median), %d ms (worst)%n",
        kind, ROUNDS, Rounds.SEED, millis.get(millis.size() / 2), millis.get(millis.size() - 1));
    Collections.sort(afterEnd);
    assertThat(afterEnd.get(afterEnd.size() * 19 / 20)).isLessThan(SOON_MILLIS);
  }

  private void kill(RankPool pool, String kind, int nRanks, int round) throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    String secret = JobSecret.random().text();
    List<FaultRankProcess> ranks = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      ranks.add(pool.take(host(kind, rank)));
      ranks
          .get(rank)
          .process()
          .sendLine(String.join(" ", "" + rank, "" + nRanks, address, secret, kind));
    }
    ranks.forEach(rank -> rank.awaitLine("running"));
    Thread.sleep(random.nextInt(SPREAD_MILLIS));
    int victim = round % nRanks;
    long killed = System.nanoTime();
    ranks.get(victim).process().kill();
    long ended = System.nanoTime(); // on a busy machine later than its kill
    for (int rank = 0; rank < nRanks; rank++) {
      if (rank != victim) {
        FaultRankProcess survivor = ranks.get(rank);
        survivor.awaitLine("failed");
        long told = judge(survivor, victim, kind + ", round " + round + ", rank " + rank);
        assertThat(told - ended).isLessThan(LATE_NANOS);
        afterEnd.add(TimeUnit.NANOSECONDS.toMillis(told - ended));
        millis.add(TimeUnit.NANOSECONDS.toMillis(told - killed));
      }
    }
    pool.start(host(kind, victim));
    for (int rank = 0; rank < nRanks; rank++) {
      if (rank != victim) {
        FaultRankProcess survivor = ranks.get(rank);
        survivor.awaitLineAfterFailure("closed");
        assertThat(survivor.last("closed")).as(survivor.output()).isEqualTo("closed, left: []");
        pool.give(host(kind, rank), survivor);
      }
    }
  }

  /** Returns the time at which the survivor got the error. */
  private static long judge(FaultRankProcess survivor, int victim, String about) {
    about += ":\n" + survivor.output();
    Matcher failed = FAILED.matcher(survivor.last("failed"));
    assertThat(failed.matches()).as(about).isTrue();
    assertThat(failed.group(1)).as(about).isEqualTo("REMOTE_FAILURE");
    assertThat(failed.group(2)).as(about).isEqualTo(Integer.toString(victim));
    // All processes of a machine share this clock.
    return Long.parseLong(failed.group(3));
  }

  private static int host(String kind, int rank) {
    return kind.equals(TWO_HOSTS) ? rank / 2 : 0;
  }
}
