// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.SafeTensors;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that share a model compute what one would, alone and in any batch. */
@Timeout(120)
class RankModelTest {
  static final int[] PROMPT = {5, 11, 42, 7, 63, 0, 19, 33, 2};

  @TempDir private Path folder;
  private final RandomModel random = new RandomModel(1);

  @BeforeEach
  void write() throws IOException {
    random.write(folder);
  }

  /** The device of the ranks. */
  DeviceChoice device() {
    return DeviceChoice.HOST;
  }

  /** By how much a logit, which are up to about 6, may differ from the plain implementation's. */
  float tolerance() {
    return 1e-4f;
  }

  /** Returns the number of prompts that share a batch. */
  int prompts() {
    return 12;
  }

  /** Returns the number of tokens that each prompt gets. */
  int tokens() {
    return 30;
  }

  final void onRanks(int nRanks, ModelOptions options, Consumer<LocalModels> body)
      throws IOException {
    LlamaConfig config = LlamaConfig.read(folder);
    SafeTensors weights = SafeTensors.open(folder);
    try (LocalModels models = LocalModels.open(nRanks, device(), config, weights, options)) {
      body.accept(models);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldComputeTheLogitsOfAPlainImplementation(int nRanks) throws IOException {
    ReferenceDecoder plain = new ReferenceDecoder(folder);
    onRanks(
        nRanks,
        new ModelOptions(4, 2, 20, 10),
        models -> {
          // In chunks of four rows, then token by token.
          List<float[]> logits = new ArrayList<>();
          List<Integer> tokens =
              models
                  .generate(List.of(PROMPT), 20, Sampling.GREEDY, (index, row) -> logits.add(row))
                  .get(0);
          List<Integer> all = Arrays.stream(PROMPT).boxed().collect(Collectors.toList());
          for (int i = 0; i < 20; i++) {
            float[] expected = plain.logits(all.stream().mapToInt(token -> token).toArray());
            assertThat(logits.get(i))
                .usingComparatorWithPrecision(tolerance())
                .containsExactly(expected);
            all.add(tokens.get(i));
          }
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldGenerateEqualTokensAloneAndInABatch(int nRanks) throws IOException {
    Random numbers = new Random(3);
    List<int[]> prompts = new ArrayList<>();
    for (int i = 0; i < prompts(); i++) {
      prompts.add(numbers.ints(1 + numbers.nextInt(40), 0, RandomModel.VOCABULARY).toArray());
    }
    for (Sampling sampling :
        List.of(Sampling.GREEDY, new Sampling(1, 1, 17), new Sampling(0.8f, 0.7f, 18))) {
      onRanks(
          nRanks,
          new ModelOptions(16, 8, 64, 100),
          models -> {
            List<List<Integer>> together = models.generate(prompts, tokens(), sampling);
            for (int i = 0; i < prompts.size(); i++) {
              List<Integer> alone =
                  models.generate(List.of(prompts.get(i)), tokens(), sampling).get(0);
              assertThat(together.get(i)).as("prompt %d", i).isEqualTo(alone).hasSize(tokens());
            }
            assertThat(models.pagesUsed()).isZero();
          });
    }
  }

  @Test
  void shouldGenerateEqualTokensOnAnyNumberOfRanks() throws IOException {
    for (Sampling sampling :
        List.of(Sampling.GREEDY, new Sampling(1, 1, 5), new Sampling(1.2f, 0.6f, 6))) {
      List<List<Integer>> results = new ArrayList<>();
      for (int nRanks : new int[] {1, 2, 4}) {
        onRanks(
            nRanks,
            new ModelOptions(8, 4, 20, 10),
            models -> results.add(models.generate(List.of(PROMPT), 2 * tokens(), sampling).get(0)));
      }
      assertThat(results).allMatch(tokens -> tokens.equals(results.get(0)));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldChooseTheTokensOfKernelsOnTheHost(int nRanks) throws IOException {
    Adjustments none = new Adjustments(RandomModel.VOCABULARY, 0, 0, 0, Map.of());
    List<int[]> prompts = List.of(PROMPT, new int[] {3, 4});
    onRanks(
        nRanks,
        new ModelOptions(8, 4, 20, 10),
        models -> {
          for (Sampling s :
              List.of(Sampling.GREEDY, new Sampling(1, 1, 17), new Sampling(2, 0.7f, 8))) {
            Sampling onHost = new Sampling(s.temperature(), s.topP(), s.seed(), none);
            assertThat(models.generate(prompts, 6, onHost))
                .isEqualTo(models.generate(prompts, 6, s));
          }
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void shouldChooseNoTokenIfLogitsAreNotFinite(int nRanks) throws IOException {
    random.tensors.get("model.embed_tokens.weight")[5 * RandomModel.HIDDEN] = Float.NaN;
    random.write(folder);
    onRanks(
        nRanks,
        new ModelOptions(8, 4, 20, 10),
        models -> {
          for (Sampling sampling : List.of(Sampling.GREEDY, new Sampling(1, 0.5f, 17))) {
            List<Integer> alone = models.generate(List.of(new int[] {3, 4}), 2, sampling).get(0);
            List<int[]> prompts = List.of(new int[] {3, 5}, new int[] {3, 4});
            assertThat(models.generate(prompts, 2, sampling)).containsExactly(List.of(-1), alone);
          }
        });
  }

  @Test
  void shouldRefuseRanksThatDoNotDivideTheModel() throws IOException {
    LlamaConfig config = LlamaConfig.read(folder);
    assertThatThrownBy(() -> config.requireDivisible(3))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("ranks=3")
        .hasMessageContaining("vocabulary=64")
        .hasMessageContaining("possible are [1, 2, 4]");
  }
}
