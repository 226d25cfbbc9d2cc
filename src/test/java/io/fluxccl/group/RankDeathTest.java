// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Real processes, really killed. {@code -Dfluxccl.kill.rounds=50} for the long version. */
@Tag("multiprocess")
class RankDeathTest {
  private static final int RANKS = 3;

  /** Four ranks, two on each of two hosts. */
  private static final String TWO_HOSTS = "hosts";

  /** Four ranks, which go on without those that die. */
  private static final String SHRINK = "shrink";

  private static final int ROUNDS = Integer.getInteger("fluxccl.kill.rounds", Rounds.of(1, 6));

  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");
  private static final Pattern SHRUNK =
      Pattern.compile("shrunk sum=(\\d+) rank=(\\d+) at=(-?\\d+)");

  private static ProcessRanks start(long timeoutMillis, String transport) {
    boolean isFour = transport.equals(TWO_HOSTS) || transport.equals(SHRINK);
    ProcessRanks.Builder builder =
        TestJvms.of(isFour ? 4 : RANKS, LongRun.class, Long.toString(timeoutMillis), transport);
    if (transport.equals(TWO_HOSTS)) {
      builder.variablesByRank(rank -> Map.of("FLUXCCL_HOSTID", "host" + rank / 2));
    }
    if (transport.equals("NET")) {
      // FluxCCL's own over TCP, whatever plugins this machine has.
      builder.variables(Map.of("NCCL_NET_PLUGIN", "none", "NCCL_NET", "fluxccl"));
    }
    return builder.start();
  }

  private static void awaitRunning(ProcessRanks ranks) {
    ranks.all().forEach(rank -> rank.awaitLine("running"));
  }

  private static List<ProcessRank> others(ProcessRanks ranks, List<Integer> victims) {
    return ranks.all().stream().filter(rank -> !victims.contains(rank.rank())).toList();
  }

  private static Matcher match(Pattern pattern, String line) {
    Matcher matcher = pattern.matcher(line);
    assertThat(matcher.find()).as(line).isTrue();
    return matcher;
  }

  /** Waits for what a rank says of a failure, and returns after how many milliseconds it came. */
  private static long awaitFailure(ProcessRank rank, String code, int victim, long since) {
    Matcher failed = match(FAILED, rank.awaitLine("failed "));
    assertThat(failed.group(1)).as(about(rank)).isEqualTo(code);
    assertThat(failed.group(2)).as(about(rank)).isEqualTo(Integer.toString(victim));
    return TimeUnit.NANOSECONDS.toMillis(Long.parseLong(failed.group(3)) - since);
  }

  private static String about(ProcessRank rank) {
    return "rank " + rank.rank() + ":\n" + rank.output();
  }

  private static void assertClosed(ProcessRank rank) {
    rank.awaitLine("closed");
    assertThat(rank.end()).as(about(rank)).isZero();
  }

  private static void assertNothingLeft(ProcessRanks ranks) {
    ranks.close();
    for (ProcessRank rank : ranks.all()) {
      assertThat(ResourceLeaks.segmentsOf(rank.pid())).as(about(rank)).isEmpty();
    }
  }

  /** Transports of one host in the long run; in the loop the one that is chosen, and two hosts. */
  static List<String> transports() {
    return Rounds.LONG || Integer.getInteger("fluxccl.kill.rounds") != null
        ? List.of("auto", "ETHERNET", "NET", TWO_HOSTS)
        : List.of("auto", TWO_HOSTS);
  }

  @ParameterizedTest
  @MethodSource("transports")
  void shouldEndEveryOtherRankWithinASecondWhenOneIsKilled(String transport) {
    for (int round = 0; round < ROUNDS; round++) {
      try (ProcessRanks ranks = start(30_000, transport)) {
        int victim = round % ranks.all().size();
        awaitRunning(ranks);
        long killed = System.nanoTime();
        ranks.get(victim).kill();
        for (ProcessRank rank : others(ranks, List.of(victim))) {
          long millis = awaitFailure(rank, "REMOTE_FAILURE", victim, killed);
          assertThat(millis).as(about(rank)).isLessThan(1000);
          assertClosed(rank);
        }
        assertNothingLeft(ranks);
      }
    }
  }

  static List<Arguments> deathsInSetUp() {
    return Rounds.LONG
        ? List.of(Arguments.of(1, 0), Arguments.of(0, 0), Arguments.of(2, 30))
        : List.of(Arguments.of(1, 0));
  }

  @ParameterizedTest(name = "rank {0} dies {1} ms after the ranks have met")
  @MethodSource("deathsInSetUp")
  void shouldEndTheOthersWhenOneDiesWhileTheLanesOpen(int victim, int millis) {
    try (ProcessRanks ranks = start(30_000, LongRun.DIES + victim + ":" + millis)) {
      ranks.get(victim).end();
      long died = System.nanoTime();
      for (ProcessRank rank : others(ranks, List.of(victim))) {
        assertThat(awaitFailure(rank, "REMOTE_FAILURE", victim, died))
            .as(about(rank))
            .isLessThan(5_000);
      }
    }
  }

  static List<String> killedAtOnce() {
    return Rounds.LONG ? List.of("2", "0", "0,1", "1,3", "0,1,2") : List.of("0,1");
  }

  @ParameterizedTest(name = "killed at once: ranks {0}")
  @MethodSource("killedAtOnce")
  void shouldGoOnWithoutRanksThatAreKilled(String killed) {
    List<Integer> victims = Arrays.stream(killed.split(",")).map(Integer::valueOf).toList();
    for (int round = 0; round < ROUNDS; round++) {
      try (ProcessRanks ranks = start(30_000, SHRINK)) {
        awaitRunning(ranks);
        long began = System.nanoTime();
        ranks.kill(victims);
        List<ProcessRank> left = others(ranks, victims);
        for (ProcessRank rank : left) {
          Matcher shrunk = match(SHRUNK, rank.awaitLine("shrunk "));
          assertThat(shrunk.group(1)).as(about(rank)).isEqualTo(Integer.toString(left.size()));
          assertThat(shrunk.group(2)).as(about(rank)).isEqualTo("" + left.indexOf(rank));
          long millis = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(shrunk.group(3)) - began);
          // A second, and a busy machine's time to make all anew.
          assertThat(millis).as(about(rank)).isLessThan(5_000);
          rank.awaitLine("closed");
        }
        assertNothingLeft(ranks);
      }
    }
  }

  @Test
  void shouldTimeOutNamingARankThatStopsAnswering() {
    int limit = Rounds.of(3_000, 5_000);
    for (int victim = 0; victim < Rounds.of(1, RANKS); victim++) {
      try (ProcessRanks ranks = start(limit, "auto")) {
        awaitRunning(ranks);
        long stopped = System.nanoTime();
        ranks.get(victim).stop();
        for (ProcessRank rank : others(ranks, List.of(victim))) {
          assertThat(awaitFailure(rank, "TIMEOUT", victim, stopped))
              .as(about(rank))
              .isBetween(limit - 1_000L, limit + 5_000L);
          rank.awaitLine("closed");
        }
        assertNothingLeft(ranks);
      }
    }
  }
}
