// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fluxccl.device.HalfFloat;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * A model's folder, computed the plain way by the rules of transformers 5: no cache, one token
 * after the other, sums of 64 bits. It shares no code with the server and checks nothing.
 */
final class ReferenceDecoder {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final JsonNode config;
  private final String family;
  private final int hidden;
  private final int heads;
  private final int kvHeads;
  private final int headDim;
  private final double[] frequencies;
  private double ropeScale = 1;

  /** By name, row by row. */
  private final Map<String, float[]> tensors = new HashMap<>();

  ReferenceDecoder(Path folder) throws IOException {
    config = JSON.readTree(folder.resolve("config.json").toFile());
    family = config.path("model_type").asText();
    hidden = config.path("hidden_size").asInt();
    heads = config.path("num_attention_heads").asInt();
    kvHeads = (int) number(config, "num_key_value_heads", heads);
    headDim = (int) number(config, "head_dim", family.equals("qwen3") ? 128 : hidden / heads);
    frequencies = frequencies();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.safetensors")) {
      for (Path file : files) {
        read(ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN));
      }
    }
  }

  private static boolean isGiven(JsonNode node, String key) {
    return !node.path(key).isMissingNode() && !node.path(key).isNull();
  }

  private static double number(JsonNode node, String key, double otherwise) {
    return isGiven(node, key) ? node.path(key).asDouble() : otherwise;
  }

  private void read(ByteBuffer file) throws IOException {
    byte[] header = new byte[(int) file.getLong()];
    file.get(header);
    int start = file.position();
    for (Map.Entry<String, JsonNode> each : JSON.readTree(header).properties()) {
      String type = each.getValue().path("dtype").asText();
      int begin = start + each.getValue().path("data_offsets").path(0).asInt();
      int bytes = start + each.getValue().path("data_offsets").path(1).asInt() - begin;
      if (List.of("F32", "F16", "BF16").contains(type)) {
        float[] values = new float[bytes / (type.equals("F32") ? 4 : 2)];
        for (int i = 0; i < values.length; i++) {
          values[i] =
              switch (type) {
                case "F32" -> file.getFloat(begin + 4 * i);
                case "F16" -> HalfFloat.fromFloat16(file.getShort(begin + 2 * i));
                default -> HalfFloat.fromBfloat16(file.getShort(begin + 2 * i));
              };
        }
        tensors.put(each.getKey(), values);
      }
    }
  }

  private double[] frequencies() {
    JsonNode old = config.path("rope_scaling");
    JsonNode rope = old.size() > 0 ? old : config.path("rope_parameters");
    double theta = number(rope, "rope_theta", number(config, "rope_theta", 10_000));
    String key = "original_max_position_embeddings";
    double context = config.path("max_position_embeddings").asDouble();
    double original = number(config, key, number(rope, key, context));
    double factor = number(rope, "factor", 1);
    String type = rope.path(isGiven(rope, "rope_type") ? "rope_type" : "type").asText();
    double[] result =
        IntStream.range(0, headDim / 2)
            .mapToDouble(i -> Math.pow(theta, -2. * i / headDim))
            .toArray();
    if (type.equals("yarn")) {
      ropeScale = yarnScale(rope, factor);
      yarn(rope, result, theta, original);
    }
    for (int i = 0; i < result.length; i++) {
      if (type.equals("linear")) {
        result[i] /= factor;
      } else if (type.equals("llama3")) {
        double wave = 2 * Math.PI / result[i];
        double low = number(rope, "low_freq_factor", 0);
        double high = number(rope, "high_freq_factor", 0);
        double smooth = (original / wave - low) / (high - low);
        if (wave > original / low) {
          result[i] /= factor;
        } else if (wave >= original / high) {
          result[i] = (1 - smooth) * result[i] / factor + smooth * result[i];
        }
      }
    }
    return result;
  }

  private static double yarnScale(JsonNode rope, double factor) {
    double some = number(rope, "mscale", 0);
    double all = number(rope, "mscale_all_dim", 0);
    double usual = factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1;
    if (some != 0 && all != 0 && factor > 1) {
      usual = (0.1 * some * Math.log(factor) + 1) / (0.1 * all * Math.log(factor) + 1);
    }
    return number(rope, "attention_factor", usual);
  }

  private void yarn(JsonNode rope, double[] result, double theta, double original) {
    double[] ends = new double[2];
    for (int i = 0; i < 2; i++) {
      double turns = i == 0 ? number(rope, "beta_fast", 32) : number(rope, "beta_slow", 1);
      double at = headDim * Math.log(original / (turns * 2 * Math.PI)) / (2 * Math.log(theta));
      boolean whole = rope.path("truncate").isMissingNode() || rope.path("truncate").asBoolean();
      ends[i] = !whole ? at : i == 0 ? Math.floor(at) : Math.ceil(at);
    }
    double low = Math.max(ends[0], 0);
    double high = Math.min(ends[1], headDim - 1);
    high += low == high ? 0.001 : 0;
    for (int i = 0; i < result.length; i++) {
      double ramp = Math.min(1, Math.max(0, (i - low) / (high - low)));
      result[i] = result[i] / number(rope, "factor", 1) * ramp + result[i] * (1 - ramp);
    }
  }

  /** Returns the first position that a token of a layer attends to. */
  private int first(int layer, int position) {
    JsonNode window = config.path("sliding_window");
    int width = window.isMissingNode() ? 4096 : window.asInt();
    JsonNode type = config.path("layer_types").path(layer);
    boolean isWindow =
        switch (family) {
          case "mistral" -> true;
          case "llama" -> false;
          default ->
              config.path("use_sliding_window").asBoolean()
                  && (type.isTextual()
                      ? type.asText().equals("sliding_attention")
                      : layer >= number(config, "max_window_layers", 28));
        };
    return isWindow && !window.isNull() ? Math.max(0, position - width + 1) : 0;
  }

  /** Returns the logits after the last token. */
  float[] logits(int... tokens) {
    double[][] x = new double[tokens.length][hidden];
    float[] table = tensors.get("model.embed_tokens.weight");
    for (int i = 0; i < tokens.length; i++) {
      for (int j = 0; j < hidden; j++) {
        x[i][j] = table[tokens[i] * hidden + j];
      }
    }
    for (int layer = 0; layer < config.path("num_hidden_layers").asInt(); layer++) {
      attend(layer, x);
      feed("model.layers." + layer + ".", x);
    }
    double[] last = norm(x[tokens.length - 1], 0, hidden, "model.norm.weight");
    boolean isTied =
        config.path("tie_word_embeddings").asBoolean() && !tensors.containsKey("lm_head.weight");
    double[] result = multiply(last, isTied ? "model.embed_tokens" : "lm_head");
    float[] logits = new float[result.length];
    IntStream.range(0, logits.length).forEach(i -> logits[i] = (float) result[i]);
    return logits;
  }

  private void attend(int layer, double[][] x) {
    String self = "model.layers." + layer + ".self_attn.";
    double[][] queries = new double[x.length][];
    double[][] keys = new double[x.length][];
    double[][] values = new double[x.length][];
    for (int i = 0; i < x.length; i++) {
      double[] h = norm(x[i], 0, hidden, "model.layers." + layer + ".input_layernorm.weight");
      queries[i] = turn(multiply(h, self + "q_proj"), i, self + "q_norm.weight");
      keys[i] = turn(multiply(h, self + "k_proj"), i, self + "k_norm.weight");
      values[i] = multiply(h, self + "v_proj");
    }
    for (int i = 0; i < x.length; i++) {
      double[] found = new double[heads * headDim];
      for (int head = 0; head < heads; head++) {
        attend(first(layer, i), i, head, queries[i], keys, values, found);
      }
      add(x[i], multiply(found, self + "o_proj"));
    }
  }

  private void attend(
      int first,
      int last,
      int head,
      double[] query,
      double[][] keys,
      double[][] values,
      double[] found) {
    int at = head * headDim;
    int kv = head / (heads / kvHeads) * headDim;
    double[] weights = new double[last + 1];
    double sum = 0;
    for (int j = first; j <= last; j++) {
      double score = 0;
      for (int k = 0; k < headDim; k++) {
        score += query[at + k] * keys[j][kv + k];
      }
      weights[j] = Math.exp(score / Math.sqrt(headDim));
      sum += weights[j];
    }
    for (int j = first; j <= last; j++) {
      for (int k = 0; k < headDim; k++) {
        found[at + k] += weights[j] / sum * values[j][kv + k];
      }
    }
  }

  private void feed(String layer, double[][] x) {
    for (double[] row : x) {
      double[] h = norm(row, 0, hidden, layer + "post_attention_layernorm.weight");
      double[] gate = multiply(h, layer + "mlp.gate_proj");
      double[] up = multiply(h, layer + "mlp.up_proj");
      for (int i = 0; i < up.length; i++) {
        up[i] *= gate[i] / (1 + Math.exp(-gate[i]));
      }
      add(row, multiply(up, layer + "mlp.down_proj"));
    }
  }

  private double[] turn(double[] vector, int position, String gain) {
    double[] turned = new double[vector.length];
    int half = headDim / 2;
    for (int at = 0; at < vector.length; at += headDim) {
      double[] head =
          family.equals("qwen3")
              ? norm(vector, at, headDim, gain)
              : Arrays.copyOfRange(vector, at, at + headDim);
      for (int i = 0; i < half; i++) {
        double cos = Math.cos(position * frequencies[i]) * ropeScale;
        double sin = Math.sin(position * frequencies[i]) * ropeScale;
        turned[at + i] = head[i] * cos - head[half + i] * sin;
        turned[at + half + i] = head[half + i] * cos + head[i] * sin;
      }
    }
    return turned;
  }

  private static void add(double[] to, double[] from) {
    for (int i = 0; i < to.length; i++) {
      to[i] += from[i];
    }
  }

  private double[] norm(double[] x, int from, int count, String gain) {
    double squares = 0;
    for (int i = 0; i < count; i++) {
      squares += x[from + i] * x[from + i];
    }
    double scale = 1 / Math.sqrt(squares / count + number(config, "rms_norm_eps", 1e-6));
    double[] result = new double[count];
    for (int i = 0; i < count; i++) {
      result[i] = x[from + i] * scale * tensors.get(gain)[i];
    }
    return result;
  }

  private boolean hasBias(String name) {
    boolean isMlp = name.contains("mlp");
    return family.equals("qwen2")
        ? !isMlp && !name.endsWith("o_proj") && name.contains("self_attn")
        : isMlp
            ? family.equals("llama") && config.path("mlp_bias").asBoolean()
            : name.contains("self_attn")
                && !family.equals("mistral")
                && config.path("attention_bias").asBoolean();
  }

  private double[] multiply(double[] x, String name) {
    float[] weights = tensors.get(name + ".weight");
    float[] bias = hasBias(name) ? tensors.get(name + ".bias") : null;
    double[] result = new double[weights.length / x.length];
    for (int i = 0; i < result.length; i++) {
      result[i] = bias == null ? 0 : bias[i];
      for (int j = 0; j < x.length; j++) {
        result[i] += weights[i * x.length + j] * x[j];
      }
    }
    return result;
  }
}
