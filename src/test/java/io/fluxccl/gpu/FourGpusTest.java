// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.RequiresGpus;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Two pairs of ranks at once in one JVM, on four GPUs. */
@RequiresGpus(4)
class FourGpusTest {
  @ParameterizedTest
  @EnumSource(Scenario.class)
  void shouldHoldOnTwoPairsAtOnce(Scenario scenario) throws Exception {
    CompletableFuture<Void> other =
        CompletableFuture.runAsync(
            () -> run(List.of(1, 2), scenario), task -> new Thread(task, "pair").start());
    GpuRanks.runOn(List.of(3, 0), scenario);
    other.join();
  }

  private static void run(List<Integer> gpus, Scenario scenario) {
    try {
      GpuRanks.runOn(gpus, scenario);
    } catch (Exception e) {
      throw new CompletionException(e);
    }
  }
}
