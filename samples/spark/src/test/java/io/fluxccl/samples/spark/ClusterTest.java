// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.RemoteFailure;
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Two workers, each with an executor: a process with two of the four tasks. */
class ClusterTest extends BarrierStageContract {
  @Override
  String master() {
    return "local-cluster[2,2,1024]";
  }

  @Test
  void shouldTrainInARetryOfTheStageWhenAnExecutorDies() throws IOException {
    List<double[]> weights =
        train(
            3,
            attempt -> {
              if (attempt == 0) {
                Runtime.getRuntime().halt(9);
              }
            });
    assertRight(weights);
    // With the executor that took the place of the dead one.
    assertThat(written("process")).isEqualTo(3);
    assertLaterAttemptTrained();
    // The two tasks of the other executor.
    assertThat(written("failure " + attempt(0))).isEqualTo(2);
    for (int rank = 0; rank < 3; rank++) {
      if (written("failure " + attempt(0) + " rank " + rank) > 0) {
        assertThat(failure(rank)).startsWith(RemoteFailure.class.getName());
      }
    }
  }
}
