// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static io.fluxccl.faults.SteadyJob.LAST_RANK;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
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

  @RegisterExtension final SteadyJob job = new SteadyJob();
  @TempDir private Path folder;

  private void start(int limitSeconds) {
    job.start(TwoHosts.routed(), folder, limitSeconds, Map.of());
  }

  private static Duration since(long nanos) {
    return Duration.ofNanos(System.nanoTime() - nanos);
  }

  @Test
  void shouldReportWithinSecondsTheRankThatCannotBeReached() {
    start(LIMIT_SECONDS);
    job.hosts().cut();
    long cut = System.nanoTime();
    job.ranks().forEach(rank -> rank.awaitLine("silent"));
    assertThat(since(cut)).isLessThan(SILENCE_BOUND);
    // Rank 0 watches the others, and they watch it.
    assertThat(job.rank(0).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(1).last("silent")).isEqualTo("silent " + LAST_RANK);
    assertThat(job.rank(LAST_RANK).last("silent")).isEqualTo("silent 0");
    assertThat(job.ranks()).allMatch(rank -> rank.count("answers no heartbeat") > 0);
    job.hosts().mend();
    job.ranks().forEach(rank -> rank.awaitLineWith("no rank is silent"));
    job.awaitMoreSteps();
  }

  @Test
  void shouldNameTheRankThatIsKilledWhileItsLinkIsDown() {
    int limitSeconds = 10;
    start(limitSeconds);
    long cut = System.nanoTime();
    job.hosts().cut();
    job.hosts().reset(0);
    job.rank(0).awaitLineWith("the link is lost");
    job.rank(LAST_RANK).kill();
    job.hosts().mend();
    for (ProcessRank survivor : job.ranks().subList(0, LAST_RANK)) {
      assertThat(survivor.awaitLine("failed")).contains("rank=" + LAST_RANK);
    }
    assertWithin(limitSeconds, cut);
  }

  @Test
  void shouldEndWithinTheLimitWhenTheLinkStaysDown() {
    int limitSeconds = 10;
    start(limitSeconds);
    long cut = System.nanoTime();
    job.hosts().cut();
    for (ProcessRank rank : job.ranks()) {
      // An end that only receives can't tell its link from a peer that has nothing to send.
      assertThat(rank.awaitLine("failed")).containsPattern("link|answers no heartbeat");
    }
    assertWithin(limitSeconds, cut);
    assertThat(job.rank(0).last("failed")).contains("rank=" + LAST_RANK);
  }

  private static void assertWithin(int limitSeconds, long sinceNanos) {
    assertThat(since(sinceNanos)).isLessThan(Duration.ofSeconds(limitSeconds + 5));
  }
}
