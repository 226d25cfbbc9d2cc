// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static io.fluxccl.faults.SteadyJob.LAST_RANK;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.agrona.CloseHelper;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A job of three ranks on two hosts whose link fails. The library's bounds: a rank that can't be
 * reached is reported as silent within 3 s, and a call that waits for it fails within its limit.
 */
@Tag("faults")
@Tag("timed")
@Timeout(300)
@Isolated
class LinkDeadlinesTest {
  private static final int LIMIT_SECONDS = 90;

  /** The bound for reporting a rank that can't be reached. */
  private static final Duration SILENCE_BOUND = Duration.ofSeconds(3);

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

  @Test
  void shouldReportWithinSecondsTheRankThatCannotBeReached() throws Exception {
    start(LIMIT_SECONDS, Map.of());
    hosts.cut();
    long cut = System.nanoTime();
    job.ranks().forEach(rank -> rank.awaitLine("silent"));
    assertThat(since(cut)).isLessThan(SILENCE_BOUND);
    // The host of the root misses the last rank, which misses the root's.
    assertThat(job.rank(0).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(1).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(LAST_RANK).last("silent")).isEqualTo("silent 0");
    assertThat(job.ranks()).allMatch(rank -> rank.count("answers no heartbeat") > 0);
    hosts.mend();
    job.ranks().forEach(rank -> rank.awaitLineWith("no rank is silent"));
    job.awaitMoreSteps();
  }

  @Test
  void shouldNameTheRankThatIsKilledWhileItsLinkIsDown() throws Exception {
    int limitSeconds = 10;
    start(limitSeconds, Map.of());
    long cut = System.nanoTime();
    hosts.cut();
    hosts.reset(0);
    job.rank(0).awaitLineWith("the link is lost");
    job.rank(LAST_RANK).process().kill();
    hosts.mend();
    for (FaultRankProcess survivor : job.ranks().subList(0, LAST_RANK)) {
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
    for (FaultRankProcess rank : job.ranks()) {
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
