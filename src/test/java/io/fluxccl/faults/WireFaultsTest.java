// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A job of three ranks on two hosts, between which packets are delayed, lost or corrupted. */
@Tag("faults")
@Timeout(300)
@Execution(ExecutionMode.CONCURRENT)
class WireFaultsTest {
  private static final int LIMIT_SECONDS = 60;
  private static final int ROUNDS = 5;

  @RegisterExtension final SteadyJob job = new SteadyJob();
  @TempDir private Path folder;

  private void start(Map<String, String> variables) throws Exception {
    job.start(TwoHosts.wired(folder), folder, LIMIT_SECONDS, variables);
  }

  @Test
  void shouldContinueIfPacketsAreDelayedAndLost() throws Exception {
    start(Map.of());
    job.hosts().delay(20);
    for (int permille = 0; permille <= 20; permille += 10) {
      job.hosts().lose(permille);
      for (int round = 0; round < ROUNDS; round++) {
        job.awaitMoreSteps();
      }
    }
    assertThat(job.count("the link is lost")).isZero();
  }

  /** TCP's own checksum does not notice what this wire does. */
  @ParameterizedTest
  @ValueSource(strings = {"FLUXCCL_CHECKSUM", "FLUXCCL_TLS"})
  void shouldBeRightWherePacketsAreFalsified(String option) throws Exception {
    start(Map.of(option, "1"));
    for (int round = 1; round <= ROUNDS; round++) {
      job.hosts().falsify(1);
      long lost = round;
      job.rank(0).await(all -> job.count("the link is lost") >= lost, "a lost link");
      job.awaitMoreSteps();
    }
  }

  /**
   * The price of having neither; it also shows that the wire falsifies. Several packets, because
   * words of a message's header may be hit: that is noticed, and the link replaced.
   */
  @Test
  void shouldBeWrongWherePacketsAreFalsifiedWithoutChecksums() throws Exception {
    start(Map.of());
    job.hosts().falsify(ROUNDS);
    job.rank(0).await(all -> job.isWrong(), "a wrong result");
  }
}
