// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.Rounds;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A job of three ranks on two hosts continues while the link between them fails. */
@Tag("faults")
@Timeout(900)
@Execution(ExecutionMode.CONCURRENT)
class LinkFaultsTest {
  private static final int LIMIT_SECONDS = 90;

  private static final int PARTITIONS = Rounds.of(4, 20);
  private static final int RESETS = Rounds.of(10, 50);

  @RegisterExtension final SteadyJob job = new SteadyJob();
  @TempDir private Path folder;

  private void start(Map<String, String> variables) {
    job.start(TwoHosts.routed(), folder, LIMIT_SECONDS, variables);
  }

  static List<Integer> secondsDown() {
    return Rounds.LONG ? List.of(2, 30, 60) : List.of(2, 10);
  }

  @ParameterizedTest
  @MethodSource("secondsDown")
  void shouldContinueAfterTheLinkWasDown(int seconds) throws Exception {
    start(Map.of());
    job.hosts().cut();
    Thread.sleep(seconds * 1000L);
    job.hosts().mend();
    job.awaitMoreSteps();
  }

  @Test
  void shouldContinueAfterManyPartitions() throws Exception {
    start(Map.of());
    Random random = new Random(Rounds.SEED);
    for (int round = 0; round < PARTITIONS; round++) {
      job.hosts().cut();
      Thread.sleep(100 + random.nextInt(3000));
      job.hosts().mend();
      job.awaitMoreSteps();
    }
  }

  /** Resets connections of the data and of the bootstrap. */
  @ParameterizedTest
  @ValueSource(strings = {"FLUXCCL_TLS=0", "FLUXCCL_TLS=1"})
  void shouldContinueIfConnectionsAreReset(String variable) throws Exception {
    String[] words = variable.split("=");
    start(Map.of(words[0], words[1]));
    Random random = new Random(Rounds.SEED);
    for (int round = 0; round < RESETS; round++) {
      Thread.sleep(random.nextInt(Rounds.of(200, 500)));
      job.hosts().reset(round % 2);
      job.awaitMoreSteps();
    }
    // At least one end of each connection logs the loss.
    assertThat(job.count("the link is lost")).isGreaterThanOrEqualTo(RESETS);
    assertThat(job.count("of the bootstrap was lost and is replaced"))
        .isGreaterThanOrEqualTo(RESETS);
    // Each rank warns of these losses at most once a minute.
    assertThat(job.count("the link was lost and is replaced: ")).isPositive();
  }

  /** NET does not resume. */
  @Test
  void shouldNameThePeerIfConnectionsOfNetAreReset() throws Exception {
    start(Map.of(AllReduceLoopRank.TRANSPORT, "NET"));
    job.hosts().reset(0);
    job.rank(0).await(rank -> rank.last("failed TRANSPORT_FAILURE rank=") != null, "a failure");
  }
}
