// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.SafeTensors;
import io.fluxccl.samples.inference.model.Tokenizer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The sample's model gives what PyTorch gives ({@code train/reference.py}). */
@Timeout(120)
class ReferenceTest {
  private static final Path MODEL = Path.of("model");
  private static final String PROMPT = "It is a truth universally acknowledged";

  /** Printed by {@code train/reference.py model --text "..." --greedy 40}. */
  private static final List<Integer> CONTINUATION =
      ids(
          "46,272,331,350,260,532,788,273,261,821,344,994,835,550,1389,561,48,792,350,260,821,344,"
              + "477,559,335,780,46,272,331,350,260,821,2009,110,780,48,792,350,260,821");

  private static final String TEXT =
      ", and it is a proof of the most unfortunate nature. It is a most unlikely thing, and it is a"
          + " most natural thing. It is a most";

  @TempDir private Path folder;

  private static List<Integer> ids(String text) {
    return Arrays.stream(text.split(",")).map(Integer::valueOf).toList();
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldChooseTheTokensOfPyTorch(int nRanks) throws IOException {
    try (Tokenizer tokenizer = Tokenizer.read(MODEL)) {
      int[] prompt = tokenizer.encode(PROMPT);
      try (LocalModels ranks = open(nRanks)) {
        List<Integer> tokens = ranks.generate(List.of(prompt), 40, Sampling.GREEDY).get(0);
        assertThat(tokens).isEqualTo(CONTINUATION);
        int[] ids = tokens.stream().mapToInt(i -> i).toArray();
        assertThat(tokenizer.decode(ids, 0, ids.length)).isEqualTo(TEXT);
      }
    }
  }

  @Test
  void shouldComputeTheLogitsOfPyTorch() throws Exception {
    String python = System.getenv().getOrDefault("PYTHON", "python3");
    assumeTrue(
        exitCode(python, "-c", "import torch") == 0,
        () -> python + " has no PyTorch; name another one in PYTHON");
    int[] prompt;
    try (Tokenizer tokenizer = Tokenizer.read(MODEL)) {
      prompt = tokenizer.encode(PROMPT);
    }
    Path file = folder.resolve("logits");
    String ids = Arrays.stream(prompt).mapToObj(String::valueOf).collect(Collectors.joining(","));
    String[] command = {
      python, "-B", "train/reference.py", "model", "--ids", ids, "--out", file.toString()
    };
    assertThat(exitCode(command)).isZero();
    FloatBuffer logits =
        ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
    try (LocalModels ranks = open(2)) {
      ranks.generate(List.of(prompt), 1, Sampling.GREEDY);
      float[] expected = new float[ranks.logits(0).length];
      logits.get((prompt.length - 1) * expected.length, expected);
      assertThat(ranks.logits(0)).usingComparatorWithPrecision(1e-3f).containsExactly(expected);
    }
  }

  private static LocalModels open(int nRanks) throws IOException {
    return LocalModels.open(
        nRanks,
        DeviceChoice.HOST,
        LlamaConfig.read(MODEL),
        SafeTensors.open(MODEL),
        new ModelOptions(16, 4, 64, 10));
  }

  private static int exitCode(String... command) throws IOException, InterruptedException {
    return new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
        .start()
        .waitFor();
  }
}
