// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.SafeTensors;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Tiny random models of all families get the logits and tokens that transformers gives them ({@code
 * train/families.py}).
 */
@Timeout(120)
class FamiliesTest {
  static final Path FAMILIES = Path.of("src/test/resources/families");
  private static final int VOCABULARY = 64;
  private static final int[] PROMPT_LENGTHS = {5, 12, 20};
  private static final int STEPS = 24;

  /** The device of the ranks. */
  DeviceChoice device() {
    return DeviceChoice.HOST;
  }

  /** By how much a logit, which are up to 7.5, may differ from that of transformers. */
  float tolerance() {
    return 1e-4f;
  }

  /** Returns the numbers of ranks for a kind. */
  List<Integer> ranks(LlamaConfig config) {
    return List.of(1, 2, 4);
  }

  /** Returns how many tokens are compared for a prompt. */
  int steps(int prompt) {
    return STEPS;
  }

  static List<String> kinds() throws IOException {
    try (Stream<Path> folders = Files.list(FAMILIES).filter(Files::isDirectory)) {
      return folders.map(each -> each.getFileName().toString()).sorted().toList();
    }
  }

  private static float[] expected(String name, int rows, int cols) throws IOException {
    HostMatrix matrix = SafeTensors.open(FAMILIES).get(name, rows, cols)[0];
    float[] values = new float[rows * cols];
    for (int i = 0; i < values.length; i++) {
      values[i] = matrix.get(i / cols, i % cols);
    }
    return values;
  }

  private static int[] integers(float[] values) {
    return IntStream.range(0, values.length).map(i -> (int) values[i]).toArray();
  }

  @ParameterizedTest
  @MethodSource("kinds")
  void shouldComputeTheLogitsOfTransformers(String kind) throws IOException {
    LlamaConfig config = LlamaConfig.read(FAMILIES.resolve(kind));
    SafeTensors weights = SafeTensors.open(FAMILIES.resolve(kind));
    config.requireTensors(weights);
    for (int nRanks : ranks(config)) {
      config.requireDivisible(nRanks);
      ModelOptions options = new ModelOptions(8, 2, 8, 10);
      try (LocalModels models = LocalModels.open(nRanks, device(), config, weights, options)) {
        for (int prompt = 0; prompt < PROMPT_LENGTHS.length; prompt++) {
          compare(models, kind, prompt);
        }
      }
    }
  }

  /**
   * Compares logits and tokens of a prompt. If the two best logits differ by less than twice the
   * tolerance, another token may be chosen; then the expected one is given as the prompt's next.
   */
  private void compare(LocalModels models, String kind, int prompt) throws IOException {
    int length = PROMPT_LENGTHS[prompt];
    int[] first = integers(expected("prompt." + prompt, 1, length));
    int count = PROMPT_LENGTHS.length * STEPS;
    int[] tokens = integers(expected(kind + ".tokens", 1, count));
    float[] logits = expected(kind + ".logits", count, VOCABULARY);
    int[] all = Arrays.copyOf(first, length + STEPS);
    System.arraycopy(tokens, prompt * STEPS, all, length, STEPS);
    for (int step = 0; step < steps(prompt); ) {
      List<float[]> found = new ArrayList<>();
      int[] known = Arrays.copyOf(all, length + step);
      List<Integer> next =
          models
              .generate(
                  List.of(known),
                  steps(prompt) - step,
                  Sampling.GREEDY,
                  (index, row) -> found.add(row))
              .get(0);
      for (int i = 0; i < next.size(); i++, step++) {
        int from = (prompt * STEPS + step) * VOCABULARY;
        float[] row = Arrays.copyOfRange(logits, from, from + VOCABULARY);
        assertThat(found.get(i))
            .as("%s, prompt %d, token %d", kind, prompt, step)
            .usingComparatorWithPrecision(tolerance())
            .containsExactly(row);
        if (next.get(i) != all[length + step]) {
          assertThat(row[next.get(i)]).isCloseTo(row[all[length + step]], within(2 * tolerance()));
          step++;
          break;
        }
      }
    }
  }

  /** So that {@link RandomFoldersTest} may compare to it. */
  @Test
  void shouldGetEqualLogitsFromTheReferenceDecoder() throws IOException {
    for (String kind : kinds()) {
      ReferenceDecoder reference = new ReferenceDecoder(FAMILIES.resolve(kind));
      int count = PROMPT_LENGTHS.length * STEPS;
      int[] tokens = integers(expected(kind + ".tokens", 1, count));
      float[] logits = expected(kind + ".logits", count, VOCABULARY);
      int[] prompt = integers(expected("prompt.2", 1, 20));
      int[] all = Arrays.copyOf(prompt, 20 + STEPS - 1);
      System.arraycopy(tokens, 2 * STEPS, all, 20, STEPS - 1);
      assertThat(reference.logits(all))
          .as(kind)
          .usingComparatorWithPrecision(1e-4f)
          .containsExactly(
              Arrays.copyOfRange(logits, (count - 1) * VOCABULARY, count * VOCABULARY));
    }
  }
}
