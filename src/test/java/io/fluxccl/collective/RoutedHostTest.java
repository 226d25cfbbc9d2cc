// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

/** The host device. */
class RoutedHostTest extends RoutedContract {
  /** A call that one rank alone was refused is not compared with a call of the other rank. */
  @Test
  @OnRanks(value = 1, hosts = 2)
  void shouldNotCompareADispatchThatIsRefusedBetweenHosts(LocalRank rank, Collectives collectives) {
    ExpertShape shape = new ExpertShape(4, 1, 4, 64, DataType.BFLOAT16, 8);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2)) {
      if (rank.rank() == 0) {
        fails(collectives.run(trial.dispatch()), InvalidUsage.class, "within a host");
      }
      completes(collectives.barrier());
      Awaitility.await()
          .during(Duration.ofMillis(600))
          .until(() -> rank.communicator().failure() == null);
      completes(collectives.barrier());
    }
  }
}
