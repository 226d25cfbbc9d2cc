package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Every algorithm of the family on GPUs, a rank on each. */
class ReduceGpuTest {
  private static final String ONE_SHOT = "one-shot-ll8";
  private static final String ONE_SHOT_LL128 = "one-shot-ll128";
  private static final String ONE_SHOT_SENTINEL = "one-shot-sentinel";

  private static void check(String algorithm, int nRanks) {
    boolean oneShot = algorithm.startsWith("one-shot");
    List<Integer> counts =
        oneShot ? List.of(1, 7, 1001, 4099, 130_003) : List.of(1, 1001, 40_003, 1_000_003);
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      assertThat(new ReduceContract(algorithm, !oneShot).check(ranks, counts)).isGreaterThan(50);
    }
  }

  @RequiresGpus(2)
  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        ONE_SHOT,
        ONE_SHOT_LL128,
        ONE_SHOT_SENTINEL,
        "two-shots-ll8",
        "two-shots-ll128",
        "two-shots-sentinel",
        "two-shots-bulk",
        "permuted",
        "permuted-staged",
        "copy-engines-reduce"
      })
  void shouldReduceOnTwo(String algorithm) {
    check(algorithm, 2);
  }

  @RequiresGpus(4)
  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        ONE_SHOT,
        ONE_SHOT_LL128,
        ONE_SHOT_SENTINEL,
        "two-shots-ll8",
        "two-shots-ll128",
        "two-shots-sentinel",
        "two-shots-bulk",
        "permuted",
        "permuted-staged",
        "copy-engines-reduce"
      })
  void shouldReduceOnFour(String algorithm) {
    check(algorithm, 4);
  }
}
