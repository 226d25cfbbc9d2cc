// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * How tokens are chosen for requests that do not say it, from {@code generation_config.json}.
 *
 * @param temperature 0 for the most likely token
 * @param topP in (0, 1]; 1 for all tokens
 * @param topK 0 for all tokens
 * @param unused keys of the file that may change answers, and have no effect on this server
 */
public record GenerationDefaults(double temperature, double topP, int topK, List<String> unused) {
  /** The defaults of OpenAI's API. */
  public static final GenerationDefaults NONE = new GenerationDefaults(1, 1, 0, List.of());

  private static final Set<String> READ =
      Set.of(
          "temperature",
          "top_p",
          "top_k",
          "eos_token_id", // read by LlamaConfig
          "bos_token_id",
          "pad_token_id",
          "do_sample", // a request with temperature 0 is greedy
          "transformers_version",
          "use_cache",
          "_from_model_config");

  /**
   * Reads a model's folder.
   *
   * @throws IOException naming the file and the key, if a value is out of range
   */
  public static GenerationDefaults read(Path folder) throws IOException {
    Path file = folder.resolve("generation_config.json");
    JsonNode json = FolderFile.optional(file);
    List<String> unused = new ArrayList<>();
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      JsonNode value = each.getValue();
      double number = value.asDouble();
      boolean off =
          value.isNull()
              || (value.isBoolean() && !value.booleanValue())
              || (value.isNumber() && (number == 0 || number == 1))
              || (value.isContainerNode() && value.isEmpty());
      if (!READ.contains(each.getKey()) && !off) {
        unused.add(each.getKey() + "=" + value);
      }
    }
    double topK = number(file, json, "top_k", 0, Integer.MAX_VALUE);
    if (topK != Math.rint(topK)) {
      throw wrong(file, json, "top_k", "a whole number");
    }
    double topP = number(file, json, "top_p", 1, 1);
    if (topP == 0) {
      throw wrong(file, json, "top_p", "above 0");
    }
    double temperature = number(file, json, "temperature", 1, 2);
    return new GenerationDefaults(temperature, topP, (int) topK, unused);
  }

  private static double number(Path file, JsonNode json, String key, double absent, double most)
      throws IOException {
    JsonNode value = json.path(key);
    if (value.isMissingNode() || value.isNull()) {
      return absent;
    }
    if (!value.isNumber() || !(value.doubleValue() >= 0 && value.doubleValue() <= most)) {
      throw wrong(file, json, key, "a number from 0 to " + (long) most);
    }
    return value.doubleValue();
  }

  private static IOException wrong(Path file, JsonNode json, String key, String need) {
    return new IOException(file + ": " + key + "=" + json.path(key) + "; it must be " + need);
  }
}
