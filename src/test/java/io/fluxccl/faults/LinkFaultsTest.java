// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static io.fluxccl.faults.SteadyJob.LAST_RANK;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.agrona.CloseHelper;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A job of three ranks on two hosts goes on while the link between them fails. */
@Tag("faults")
@Timeout(900)
@Execution(ExecutionMode.CONCURRENT)
class LinkFaultsTest {
  private static final int LIMIT_SECONDS = 90;

  /** Within which a rank that can't be reached is news. */
  private static final Duration SOON = Duration.ofSeconds(3);

  private static final Optional<String> MISSING = TwoHosts.missing();

  private TwoHosts hosts;
  private SteadyJob job;

  @BeforeEach
  void connect() throws Exception {
    assumeTrue(MISSING.isEmpty(), () -> MISSING.orElse(""));
    hosts = new TwoHosts();
  }

  @AfterEach
  void end() {
    CloseHelper.closeAll(job, hosts);
  }

  private void start(int limitSeconds, Map<String, String> variables) throws Exception {
    job = new SteadyJob(hosts, limitSeconds, variables);
  }

  private static Duration since(long nanos) {
    return Duration.ofNanos(System.nanoTime() - nanos);
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 30, 60})
  void shouldGoOnWhenTheLinkWasDown(int seconds) throws Exception {
    start(LIMIT_SECONDS, Map.of());
    hosts.cut();
    Thread.sleep(seconds * 1000L);
    hosts.mend();
    job.awaitMoreSteps();
  }

  @Test
  void shouldTellWithinSecondsWhichRankCannotBeReached() throws Exception {
    start(LIMIT_SECONDS, Map.of());
    hosts.cut();
    long cut = System.nanoTime();
    job.ranks().forEach(rank -> rank.awaitLine("silent"));
    assertThat(since(cut)).isLessThan(SOON);
    // The host of the root misses the last rank, which misses the root's.
    assertThat(job.rank(0).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(1).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(LAST_RANK).last("silent")).isEqualTo("silent 0");
    assertThat(job.ranks()).allMatch(rank -> rank.count("answers no heartbeat") > 0);
    hosts.mend();
    job.ranks().forEach(rank -> rank.awaitLineWith("nobody is silent"));
    job.awaitMoreSteps();
  }

  @Test
  void shouldGoOnThroughManyPartitions() throws Exception {
    start(LIMIT_SECONDS, Map.of());
    Random random = new Random(1);
    for (int round = 0; round < 20; round++) {
      hosts.cut();
      Thread.sleep(100 + random.nextInt(3000));
      hosts.mend();
      job.awaitMoreSteps();
    }
  }

  /** Those of the data and of the bootstrap. */
  @ParameterizedTest
  @ValueSource(strings = {"FLUXCCL_TLS=0", "FLUXCCL_TLS=1", SteadyRank.TRANSPORT + "=NET"})
  void shouldGoOnWhenConnectionsAreReset(String variable) throws Exception {
    String[] words = variable.split("=");
    start(LIMIT_SECONDS, Map.of(words[0], words[1]));
    Random random = new Random(2);
    for (int round = 0; round < 50; round++) {
      Thread.sleep(random.nextInt(Rounds.of(200, 500)));
      hosts.reset(round % 2);
      job.awaitMoreSteps();
    }
    // Each end says so, unless the other one was first.
    assertThat(job.count("the link is lost")).isGreaterThanOrEqualTo(50);
    assertThat(job.count("of the bootstrap was reset and is replaced")).isGreaterThanOrEqualTo(50);
    // Of these losses, each rank has warned once a minute.
    assertThat(job.count("the link was lost and is replaced: ")).isPositive();
  }

  @Test
  void shouldNameTheRankThatIsKilledWhileItsLinkIsDown() throws Exception {
    int limitSeconds = 20;
    start(limitSeconds, Map.of());
    long cut = System.nanoTime();
    hosts.cut();
    hosts.reset(0);
    job.rank(0).awaitLineWith("the link is lost");
    job.rank(LAST_RANK).process().kill();
    hosts.mend();
    for (RankProcess survivor : job.ranks().subList(0, LAST_RANK)) {
      survivor.awaitLine("failed");
      assertThat(survivor.last("failed")).contains("rank=" + LAST_RANK);
    }
    assertWithin(limitSeconds, cut);
  }

  @Test
  void shouldEndWithinTheLimitWhenTheLinkStaysDown() throws Exception {
    int limitSeconds = 10;
    start(limitSeconds, Map.of());
    long cut = System.nanoTime();
    hosts.cut();
    for (RankProcess rank : job.ranks()) {
      rank.awaitLine("failed");
      // An end that only receives can't tell its link from a peer that has nothing to send.
      assertThat(rank.last("failed")).containsPattern("link|answers no heartbeat");
    }
    assertWithin(limitSeconds, cut);
    assertThat(job.rank(0).last("failed")).contains("rank=" + LAST_RANK);
  }

  private static void assertWithin(int limitSeconds, long sinceNanos) {
    assertThat(since(sinceNanos)).isLessThan(Duration.ofSeconds(limitSeconds + 5));
  }
}
