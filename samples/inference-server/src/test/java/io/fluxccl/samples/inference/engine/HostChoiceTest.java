// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class HostChoiceTest {
  private static final float[] LOGITS = {1, 4, 2, 3, 0};

  private static int choose(float temperature, float topP, long seed, Adjustments adjustments) {
    Sampling sampling = new Sampling(temperature, topP, seed, adjustments);
    return HostChoice.choose(LOGITS.clone(), sampling, 7);
  }

  /** Returns how often each token is chosen in 20,000 times. */
  private static int[] counts(float topP, int topK, float minP) {
    int[] counts = new int[LOGITS.length];
    for (int seed = 0; seed < 20_000; seed++) {
      counts[choose(1, topP, seed, new Adjustments(topK, minP, 0, 0, Map.of()))]++;
    }
    return counts;
  }

  @Test
  void shouldChooseByProbability() {
    double all = 0;
    for (float logit : LOGITS) {
      all += Math.exp(logit);
    }
    int[] counts = counts(1, 0, 0);
    for (int token = 0; token < LOGITS.length; token++) {
      assertThat(counts[token] / 20_000.0).isCloseTo(Math.exp(LOGITS[token]) / all, within(0.02));
    }
  }

  @Test
  void shouldChooseAmongTheTokensThatTheLimitsLeave() {
    // Probabilities, of the most likely token first: 0.64, 0.24, 0.09, 0.03, 0.01.
    assertThat(counts(1, 3, 0)).satisfies(counts -> leaves(counts, 1, 2, 3));
    assertThat(counts(0.7f, 0, 0)).satisfies(counts -> leaves(counts, 1, 3));
    assertThat(counts(1, 0, 0.1f)).satisfies(counts -> leaves(counts, 1, 2, 3));
    assertThat(counts(1, 0, 1)).satisfies(counts -> leaves(counts, 1));
    // Of the two tokens that topK leaves, the first alone has 0.73.
    assertThat(counts(0.7f, 2, 0)).satisfies(counts -> leaves(counts, 1));
    assertThat(counts(1, 99, 0)).satisfies(counts -> leaves(counts, 0, 1, 2, 3, 4));
  }

  private static void leaves(int[] counts, Integer... tokens) {
    for (int token = 0; token < counts.length; token++) {
      assertThat(counts[token] > 0).as("%d", token).isEqualTo(List.of(tokens).contains(token));
    }
  }

  @Test
  void shouldKeepOneOfEqualTokensIfTopKIsOne() {
    float[] equal = {2, 2, 2};
    Sampling sampling = new Sampling(1, 1, 3, new Adjustments(1, 0, 0, 0, Map.of()));
    assertThat(HostChoice.choose(equal, sampling, 0)).isZero();
  }

  @Test
  void shouldAddBiasesAndSubtractPenalties() {
    float[] logits = LOGITS.clone();
    Adjustments adjustments = new Adjustments(0, 0, 0.5f, 0.25f, Map.of(0, 100f, 1, -4f));
    HostChoice.adjust(logits, adjustments, new int[] {3, 2, 3});
    assertThat(logits).containsExactly(101, 0, 1.25f, 2, 0);
    HostChoice.exclude(logits, Set.of(0, 99));
    assertThat(HostChoice.choose(logits, Sampling.GREEDY, 0)).isEqualTo(3);
  }

  @Test
  void shouldChooseNoTokenIfLogitsAreNotFinite() {
    for (float bad : new float[] {Float.NaN, Float.POSITIVE_INFINITY}) {
      for (float temperature : new float[] {0, 1}) {
        float[] logits = {1, bad, 2};
        Sampling sampling = new Sampling(temperature, 0.5f, 0);
        assertThat(HostChoice.choose(logits, sampling, 0)).as("%s", bad).isNegative();
      }
    }
  }

  @Test
  void shouldReturnTheLogarithmsOfProbabilities() {
    List<HostChoice.Logprob> found = HostChoice.logprobs(LOGITS, 4, 2);
    assertThat(found).extracting(HostChoice.Logprob::token).containsExactly(4, 1, 3);
    assertThat(found.get(1).value()).isCloseTo(Math.log(0.6364), within(1e-3));
    assertThat(found.get(1).value() - found.get(0).value()).isCloseTo(4, within(1e-6));
    assertThat(HostChoice.logprobs(LOGITS, 4, 0)).hasSize(1);
    assertThat(HostChoice.logprobs(LOGITS, 4, 20)).hasSize(6);
  }
}
