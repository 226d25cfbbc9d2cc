// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.SafeTensors;
import io.fluxccl.samples.inference.model.Tokenizer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Folders with a change or two in config.json, the weights' header or the tokenizer, by seed: each
 * is served as {@link ReferenceDecoder} computes it, or refused in one line. {@code
 * -Dinference.folders=500 -Dinference.seed=7} tries others.
 */
@Timeout(600)
class RandomFoldersTest {
  private static final int FOLDERS = Integer.getInteger("inference.folders", 40);
  private static final long SEED = Long.getLong("inference.seed", 1);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final ModelOptions OPTIONS = new ModelOptions(8, 2, 8, 10);

  /** Values of keys; the first ones, which are taken more often, are more often valid. */
  private static final Path VALUES = Path.of("src/test/resources/config-values.json");

  @TempDir private Path temporary;
  private final Random random = new Random(SEED);

  private <T> T pick(List<T> from) {
    return from.get(random.nextInt(from.size()));
  }

  private void changeConfig(Path folder) throws IOException {
    Path file = folder.resolve("config.json");
    ObjectNode config = (ObjectNode) JSON.readTree(file.toFile());
    ObjectNode values = (ObjectNode) JSON.readTree(VALUES.toFile());
    List<String> keys = new ArrayList<>();
    values.fieldNames().forEachRemaining(keys::add);
    for (int i = random.nextInt(3); i >= 0; i--) {
      String key = pick(keys);
      int count = values.get(key).size();
      JsonNode value = values.get(key).get(Math.min(random.nextInt(count), random.nextInt(count)));
      if (random.nextInt(8) == 0) {
        config.remove(key);
      } else {
        config.set(key, value);
      }
      if (key.equals("rope_scaling") && random.nextInt(4) > 0) {
        config.remove("rope_parameters");
      }
    }
    Files.writeString(file, config.toString());
  }

  private void changeHeader(Path folder) throws IOException {
    Path file = folder.resolve("model.safetensors");
    byte[] all = Files.readAllBytes(file);
    int length = (int) ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN).getLong();
    ObjectNode header = (ObjectNode) JSON.readTree(Arrays.copyOfRange(all, 8, 8 + length));
    List<String> names = new ArrayList<>();
    header.fieldNames().forEachRemaining(names::add);
    names.remove("__metadata__");
    String name = pick(names);
    ObjectNode tensor = (ObjectNode) header.get(name);
    ArrayNode offsets = (ArrayNode) tensor.get("data_offsets");
    ArrayNode shape = (ArrayNode) tensor.get("shape");
    byte[] data = Arrays.copyOfRange(all, 8 + length, all.length);
    switch (random.nextInt(11)) {
      case 0 -> header.remove(name);
      case 1 -> header.set(name + "x", header.remove(name));
      case 2 -> tensor.put("dtype", pick(List.of("F32", "F16", "I8", "F8_E4M3", "F64", "x", "")));
      case 3 -> offsets.set(random.nextInt(2), offsets.get(0).asLong() + random.nextInt(65) - 32);
      case 4 -> shape.set(0, pick(List.of(0, -1, 7, 64, Integer.MAX_VALUE)));
      case 5 -> shape.insert(0, pick(List.of(1, 2)));
      case 6 -> data = Arrays.copyOf(data, data.length - 1 - random.nextInt(100));
      case 7 -> data = Arrays.copyOf(data, data.length + 8); // no tensor has the last bytes
      case 8 -> header.set("lm_head.bias", tensor.deepCopy().put("dtype", "I64"));
      case 9 -> header.set(name, JSON.createArrayNode().add(1));
      default -> tensor.remove(pick(List.of("dtype", "shape", "data_offsets")));
    }
    byte[] text = JSON.writeValueAsBytes(header);
    int wrong = random.nextInt(20) == 0 ? random.nextInt(200) - 100 : 0;
    ByteBuffer changed = ByteBuffer.allocate(8 + text.length + data.length);
    changed.order(ByteOrder.LITTLE_ENDIAN).putLong(text.length + wrong).put(text).put(data);
    Files.write(file, changed.array());
  }

  private void changeTokenizer(Path folder) throws IOException {
    Path file = folder.resolve("tokenizer.json");
    String text = Files.readString(file);
    switch (random.nextInt(4)) {
      case 0 -> Files.writeString(file, text.substring(0, random.nextInt(text.length())));
      case 1 -> Files.delete(file);
      case 2 -> Files.writeString(file, text.replace("\"model\"", "\"models\""));
      default -> Files.writeString(file, text.replace("WordLevel", "Unknown"));
    }
  }

  private Path folder(int number) throws IOException {
    Path folder = Files.createDirectory(temporary.resolve("folder-" + number));
    new RandomModel(1).write(folder);
    Files.delete(folder.resolve("model-1.safetensors"));
    Files.delete(folder.resolve("model-2.safetensors"));
    Path kind = FamiliesTest.FAMILIES.resolve(pick(FamiliesTest.kinds()));
    for (String file : List.of("config.json", "model.safetensors")) {
      Files.write(folder.resolve(file), Files.readAllBytes(kind.resolve(file)));
    }
    int what = random.nextInt(10);
    if (what < 6) {
      changeConfig(folder);
    } else if (what < 9) {
      changeHeader(folder);
    } else {
      changeTokenizer(folder);
    }
    return folder;
  }

  @Test
  void shouldServeAFolderRightlyOrRefuseItInOneLine() throws IOException {
    int served = 0;
    for (int i = 0; i < FOLDERS; i++) {
      Path folder = folder(i);
      int nRanks = 1 + random.nextInt(2);
      String what = "seed " + SEED + ", folder " + i + ": ";
      try {
        LlamaConfig config = LlamaConfig.read(folder);
        SafeTensors weights = SafeTensors.open(folder);
        Tokenizer.read(folder).close();
        config.requireDivisible(nRanks);
        config.requireTensors(weights);
        serve(what, folder, nRanks, config, weights);
        served++;
      } catch (IllegalArgumentException | IOException e) {
        assertThat(e.getMessage()).as(what).isNotBlank().doesNotContain("\n");
      } catch (RuntimeException e) {
        throw new AssertionError(what + Files.readString(folder.resolve("config.json")), e);
      }
    }
    assertThat(served).isBetween(FOLDERS / 8, FOLDERS * 7 / 8);
  }

  private void serve(String what, Path folder, int nRanks, LlamaConfig config, SafeTensors weights)
      throws IOException {
    ReferenceDecoder reference = new ReferenceDecoder(folder);
    int[] prompt = random.ints(10, 0, 64).toArray();
    List<float[]> logits = new ArrayList<>();
    try (LocalModels models =
        LocalModels.open(nRanks, DeviceChoice.HOST, config, weights, OPTIONS)) {
      List<Integer> tokens =
          models
              .generate(List.of(prompt), 3, Sampling.GREEDY, (index, row) -> logits.add(row))
              .get(0);
      int[] all = Arrays.copyOf(prompt, 12);
      all[10] = tokens.get(0);
      all[11] = tokens.get(1);
      for (int i = 0; i < 3; i++) {
        float[] expected = reference.logits(Arrays.copyOf(all, 10 + i));
        float[] found = logits.get(i);
        double most =
            IntStream.range(0, 64).mapToDouble(j -> Math.abs(expected[j])).max().orElse(0);
        for (int j = 0; j < expected.length && Double.isFinite(most); j++) {
          assertThat(found[j])
              .as("%s%s, token %d", what, Files.readString(folder.resolve("config.json")), i)
              .isCloseTo(expected[j], within((float) (1e-3 * Math.max(1, most))));
        }
      }
    }
  }
}
