// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A rank is killed while others, which are ranks of this JVM, connect to it for their first
 * collective. They learn which one it was.
 */
@Tag("faults")
@Timeout(600)
@Execution(ExecutionMode.CONCURRENT)
class DemandKillsTest {
  private static final int VICTIM = 2;
  private static final int RANKS = 3;
  private static final int MOST_MILLIS = 60;
  private static final int LIMIT_SECONDS = 60;

  private final Random random = new Random(Rounds.SEED);

  /** A rank that joins, and takes part in nothing. */
  static final class IdleRank {
    private IdleRank() {}

    public static void main(String[] args) {
      try (RankGroup group = RankGroup.fromEnvironment().join()) {
        System.out.println("joined");
        group.communicator().failed().join();
      }
    }
  }

  /** A stopped rank can't answer, so the others surely connect when it is killed. */
  @ParameterizedTest(name = "stopped before it is killed: {0}")
  @ValueSource(booleans = {true, false})
  @Execution(ExecutionMode.SAME_THREAD)
  void shouldNameTheRankThatIsKilledWhileOthersConnectToIt(boolean stopped) throws Exception {
    for (int round = 0; round < Rounds.of(10, 20); round++) {
      // On a host of its own, so that the others connect to it over ETHERNET.
      ProcessRanks.Builder job =
          TestJvms.withLog(RANKS, IdleRank.class).variables(Map.of("FLUXCCL_HOSTID", "another"));
      List<CompletableFuture<RankGroup>> joins =
          IntStream.range(0, VICTIM).mapToObj(job::joinOptions).map(RankGroup::join).toList();
      try (ProcessRank victim = job.startRank(VICTIM)) {
        victim.awaitLine("joined");
        if (stopped) {
          victim.stop();
        }
        List<RankGroup> groups = joins.stream().map(CompletableFuture::join).toList();
        assertThat(groups)
            .allMatch(group -> group.communicator().dump().contains("over ETHERNET: works"));
        List<CompletableFuture<FluxCclException>> failures = new ArrayList<>();
        groups.forEach(group -> failures.add(failureOfFirstCollective(group)));
        Thread.sleep(random.nextInt(MOST_MILLIS));
        assertThat(failures).as("round " + round).noneMatch(CompletableFuture::isDone);
        victim.kill();
        for (CompletableFuture<FluxCclException> each : failures) {
          FluxCclException failure = each.get(LIMIT_SECONDS, TimeUnit.SECONDS);
          assertThat(failure.code()).as("%s", failure).isEqualTo(ErrorCode.REMOTE_FAILURE);
          assertThat(failure.rank()).as("%s", failure).isEqualTo(VICTIM);
        }
        groups.forEach(RankGroup::close);
      }
    }
  }

  private static CompletableFuture<FluxCclException> failureOfFirstCollective(RankGroup group) {
    IntView values = group.device().allocateInts(1_000);
    return group
        .collectives()
        .allReduce(values, values, ReduceOp.SUM)
        .toFuture()
        .handle((done, failure) -> FluxCclException.from(failure));
  }
}
