// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;

/**
 * The shape of a model of the Llama family, from {@code config.json}.
 *
 * @param hidden the width of the residual stream
 * @param intermediate the width between the projections of a layer's MLP
 * @param layers how many
 * @param heads of queries
 * @param kvHeads of keys and values; divides {@code heads}
 * @param headDim the width of a head
 * @param vocabulary how many tokens there are
 * @param context the most tokens of a sequence
 * @param epsilon of RMSNorm
 * @param inverseFrequencies of RoPE, one for each pair of a head's elements
 * @param tied whether the output projection is the embedding
 * @param ends tokens that end a text
 */
public record LlamaConfig(
    int hidden,
    int intermediate,
    int layers,
    int heads,
    int kvHeads,
    int headDim,
    int vocabulary,
    int context,
    float epsilon,
    float[] inverseFrequencies,
    boolean tied,
    Set<Integer> ends) {

  /**
   * Reads a model's folder.
   *
   * @throws IllegalArgumentException if the model belongs to another family
   */
  public static LlamaConfig read(Path folder) throws IOException {
    JsonNode json = new ObjectMapper().readTree(folder.resolve("config.json").toFile());
    if (!"llama".equals(json.path("model_type").asText())) {
      throw new IllegalArgumentException(
          folder + "/config.json: model_type=" + json.path("model_type") + "; only llama is known");
    }
    int hidden = json.get("hidden_size").asInt();
    int heads = json.get("num_attention_heads").asInt();
    int headDim = json.path("head_dim").asInt(hidden / heads);
    Set<Integer> ends = new HashSet<>();
    JsonNode end = json.path("eos_token_id");
    ends.add(end.asInt(-1));
    end.forEach(id -> ends.add(id.asInt(-1)));
    return new LlamaConfig(
        hidden,
        json.get("intermediate_size").asInt(),
        json.get("num_hidden_layers").asInt(),
        heads,
        json.path("num_key_value_heads").asInt(heads),
        headDim,
        json.get("vocab_size").asInt(),
        json.get("max_position_embeddings").asInt(),
        (float) json.path("rms_norm_eps").asDouble(1e-6),
        frequencies(json, headDim),
        json.path("tie_word_embeddings").asBoolean(false),
        Set.copyOf(ends));
  }

  private static float[] frequencies(JsonNode json, int headDim) {
    double theta = json.path("rope_theta").asDouble(10_000);
    JsonNode scaling = json.path("rope_scaling");
    String kind = scaling.path("rope_type").asText("default");
    if (!kind.equals("default") && !kind.equals("llama3")) {
      throw new IllegalArgumentException(
          "rope_type=" + kind + "; only default and llama3 are known");
    }
    float[] result = new float[headDim / 2];
    for (int i = 0; i < result.length; i++) {
      double frequency = Math.pow(theta, -2.0 * i / headDim);
      result[i] = (float) (kind.equals("llama3") ? stretched(frequency, scaling) : frequency);
    }
    return result;
  }

  /** Llama 3.1's way to longer contexts: low frequencies are divided, those between blended. */
  private static double stretched(double frequency, JsonNode scaling) {
    double factor = scaling.get("factor").asDouble();
    double low = scaling.get("low_freq_factor").asDouble();
    double high = scaling.get("high_freq_factor").asDouble();
    double turns =
        scaling.get("original_max_position_embeddings").asDouble() * frequency / (2 * Math.PI);
    double share = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return frequency * (share + (1 - share) / factor);
  }

  /**
   * Refuses a number of ranks among which the model can't be divided evenly.
   *
   * @throws IllegalArgumentException that lists possible numbers
   */
  public void requireDivisible(int nRanks) {
    if (kvHeads % nRanks != 0 || intermediate % nRanks != 0 || vocabulary % nRanks != 0) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "ranks=%d; they must divide kvHeads=%d, intermediate=%d and vocabulary=%d",
              nRanks,
              kvHeads,
              intermediate,
              vocabulary));
    }
  }
}
