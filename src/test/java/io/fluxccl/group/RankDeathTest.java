// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Kills real processes, {@code -Dfluxccl.kill.rounds} times each. */
@Tag("multiprocess")
class RankDeathTest {
  private static final int RANKS = 3;

  /** Four ranks, of which the survivors shrink the group. */
  private static final String SHRINK = "shrink";

  private static final int ROUNDS = Integer.getInteger("fluxccl.kill.rounds", Rounds.of(1, 6));

  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");
  private static final Pattern SHRUNK =
      Pattern.compile("shrunk sum=(\\d+) rank=(\\d+) at=(-?\\d+)");

  /** Four processes that are ranks of one job after the other; tests replace those they kill. */
  private static ProcessRanks pool;

  @BeforeAll
  static void startPool() {
    pool = TestJvms.of(4, LongRun.class, LongRun.SERVE).start();
  }

  @AfterAll
  static void endPool() {
    assertNothingLeft(pool);
  }

  private static List<ProcessRank> others(ProcessRanks ranks, List<Integer> victims) {
    return ranks.all().stream().filter(rank -> !victims.contains(rank.rank())).toList();
  }

  private static Matcher match(Pattern pattern, String line) {
    Matcher matcher = pattern.matcher(line);
    assertThat(matcher.find()).as(line).isTrue();
    return matcher;
  }

  /** Waits for a rank's failure line and returns the milliseconds from {@code since} to it. */
  private static long awaitFailure(ProcessRank rank, String code, int victim, long since) {
    Matcher failed = match(FAILED, rank.awaitLine("failed "));
    assertThat(failed.group(1)).as(about(rank)).isEqualTo(code);
    assertThat(failed.group(2)).as(about(rank)).isEqualTo(Integer.toString(victim));
    return millis(failed, since);
  }

  private static long millis(Matcher said, long since) {
    return TimeUnit.NANOSECONDS.toMillis(Long.parseLong(said.group(3)) - since);
  }

  private static void assertShrunk(ProcessRank rank, List<ProcessRank> left) {
    Matcher shrunk = match(SHRUNK, rank.awaitLine("shrunk "));
    assertThat(shrunk.group(1)).as(about(rank)).isEqualTo(Integer.toString(left.size()));
    assertThat(shrunk.group(2)).as(about(rank)).isEqualTo("" + left.indexOf(rank));
  }

  private static String about(ProcessRank rank) {
    return "rank " + rank.rank() + ":\n" + rank.output();
  }

  private static void assertNothingLeft(ProcessRanks ranks) {
    ranks.close();
    for (ProcessRank rank : ranks.all()) {
      assertThat(ResourceLeaks.segmentsOf(rank.pid())).as(about(rank)).isEmpty();
    }
  }

  /** Sends ranks 0, 1, ... the description of their next job. */
  private static void tell(List<ProcessRank> ranks, String kindAndLimit) throws IOException {
    String job = "127.0.0.1:" + Ports.reserved() + " " + JobSecret.random().text();
    for (int rank = 0; rank < ranks.size(); rank++) {
      ranks.get(rank).forget();
      ranks.get(rank).sendLine(String.join(" ", "" + rank, "" + ranks.size(), job, kindAndLimit));
    }
    ranks.forEach(rank -> rank.awaitLine("running"));
  }

  @Test
  void shouldServeAnotherJobAfterRanksAreKilled() throws Exception {
    goOnWithout(List.of(0, 1));
    timeOut(List.of(pool.get(2), pool.get(3)), 0, 2_000);
  }

  private static void goOnWithout(List<Integer> victims) throws IOException {
    tell(pool.all(), SHRINK);
    pool.kill(victims);
    List<ProcessRank> left = others(pool, victims);
    for (ProcessRank rank : left) {
      Matcher failed = match(FAILED, rank.awaitLine("failed "));
      assertThat(failed.group(1)).as(about(rank)).isEqualTo("REMOTE_FAILURE");
      assertThat(victims).as(about(rank)).contains(Integer.parseInt(failed.group(2)));
      assertShrunk(rank, left);
      assertThat(rank.awaitLine("closed")).isEqualTo("closed, left: []");
    }
    victims.forEach(pool::replace);
  }

  /** Stops a rank of a job until the other ranks have failed. */
  private static void timeOut(List<ProcessRank> ranks, int victim, int limit) throws IOException {
    tell(ranks, "auto " + limit);
    long stopped = System.nanoTime();
    ranks.get(victim).stop();
    for (ProcessRank rank : ranks) {
      if (rank != ranks.get(victim)) {
        assertThat(awaitFailure(rank, "TIMEOUT", victim, stopped))
            .isGreaterThanOrEqualTo(limit - 1_000L);
        assertThat(rank.awaitLine("closed")).isEqualTo("closed, left: []");
      }
    }
    ranks.get(victim).resume();
    assertThat(ranks.get(victim).awaitLine("closed")).isEqualTo("closed, left: []");
  }

  /** The bound: closing takes at most three seconds beside a rank that is stopped. */
  @Tag("timed")
  @ParameterizedTest
  @ValueSource(ints = {0, 2})
  void shouldCloseAllGroupsWithinThreeSecondsIfARankIsStopped(int stopped) {
    try (ProcessRanks ranks = TestJvms.of(RANKS, ClosingRank.class).start()) {
      ranks.all().forEach(rank -> rank.awaitLine("joined"));
      ranks.get(stopped).stop();
      List<ProcessRank> left = others(ranks, List.of(stopped));
      left.forEach(rank -> rank.sendLine("close"));
      for (ProcessRank rank : left) {
        String closed = rank.awaitLine("closed after ");
        long millis = Long.parseLong(closed.substring(closed.lastIndexOf(' ') + 1));
        assertThat(millis).as(about(rank)).isLessThan(3_000);
        assertThat(rank.end()).as(about(rank)).isZero();
      }
    }
  }

  /** The bound: each other rank reports a death within a second. */
  @Tag("timed")
  @Test
  void shouldEndEveryOtherRankWithinASecondWhenOneIsKilled() throws IOException {
    tell(pool.all(), "auto");
    long killed = System.nanoTime();
    pool.get(1).kill();
    for (ProcessRank rank : others(pool, List.of(1))) {
      long millis = awaitFailure(rank, "REMOTE_FAILURE", 1, killed);
      assertThat(millis).as(about(rank)).isLessThan(1_000);
      assertThat(rank.awaitLine("closed")).isEqualTo("closed, left: []");
    }
    pool.replace(1);
  }

  static List<Arguments> deathsInSetUp() {
    return Rounds.LONG
        ? List.of(Arguments.of(1, 0), Arguments.of(0, 0), Arguments.of(2, 30))
        : List.of(Arguments.of(1, 0));
  }

  @ParameterizedTest(name = "rank {0} dies {1} ms after the ranks have met")
  @MethodSource("deathsInSetUp")
  void shouldEndTheOthersWhenOneDiesWhileTheLanesOpen(int victim, int millis) {
    String dies = LongRun.DIES + victim + ":" + millis;
    try (ProcessRanks ranks = TestJvms.of(RANKS, LongRun.class, dies).start()) {
      ranks.get(victim).end();
      for (ProcessRank rank : others(ranks, List.of(victim))) {
        awaitFailure(rank, "REMOTE_FAILURE", victim, 0);
      }
    }
  }

  static List<String> killedAtOnce() {
    return List.of("2", "0", "0,1", "1,3", "0,1,2");
  }

  @Tag("long")
  @ParameterizedTest(name = "killed at once: ranks {0}")
  @MethodSource("killedAtOnce")
  void shouldShrinkIfRanksAreKilled(String killed) throws IOException {
    for (int round = 0; round < ROUNDS; round++) {
      goOnWithout(Arrays.stream(killed.split(",")).map(Integer::valueOf).toList());
    }
  }

  @Test
  @Tag("long")
  void shouldTimeOutNamingARankThatStopsAnswering() throws IOException {
    for (int victim = 0; victim < RANKS; victim++) {
      timeOut(pool.all().subList(0, RANKS), victim, 3_000);
    }
  }
}
