// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Every algorithm of the family on GPUs. */
class ReduceGpuTest {
  static List<String> algorithms() {
    return List.of(
        "one-shot-ll8",
        "one-shot-ll128",
        "one-shot-sentinel",
        "two-shots-ll8",
        "two-shots-ll128",
        "two-shots-sentinel",
        "two-shots-bulk",
        "staggered-direct",
        "staggered-staged",
        "copy-engines-reduce");
  }

  private static void check(String algorithm, int nRanks) {
    int most = algorithm.startsWith("one-shot") ? 130_003 : 1_000_003;
    check(algorithm, nRanks, List.of(1, 7, 1001, 40_003, most));
  }

  private static void check(String algorithm, int nRanks, List<Integer> counts) {
    boolean registered = !algorithm.startsWith("one-shot");
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      new ReduceContract(algorithm, registered).check(ranks, counts, 50);
    }
  }

  @RequiresGpus(2)
  @ParameterizedTest(name = "{0}")
  @MethodSource("algorithms")
  void shouldReduceOnTwo(String algorithm) {
    check(algorithm, 2);
  }

  @RequiresGpus(4)
  @ParameterizedTest(name = "{0}")
  @MethodSource("algorithms")
  void shouldReduceOnFour(String algorithm) {
    check(algorithm, 4);
  }

  /** Eight ranks, which share GPUs if there are fewer than eight. */
  @RequiresGpus(2)
  @ParameterizedTest(name = "{0}")
  @MethodSource("algorithms")
  void shouldReduceOfEight(String algorithm) {
    check(algorithm, 8, List.of(1, 1001, 40_003));
  }
}
