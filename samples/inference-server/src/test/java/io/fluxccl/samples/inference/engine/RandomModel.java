// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A small model with weights from a seed, as a Hugging Face folder, and as plain arrays. Its tokens
 * are the words w0, w1, ...
 */
final class RandomModel {
  static final int HIDDEN = 32;
  static final int INTERMEDIATE = 48;
  static final int LAYERS = 2;
  static final int HEADS = 8;
  static final int KV_HEADS = 4;
  static final int HEAD_DIM = 8;
  static final int VOCABULARY = 64;
  static final int CONTEXT = 128;
  static final float EPSILON = 1e-5f;

  /** By name, row by row. */
  final Map<String, float[]> tensors = new LinkedHashMap<>();

  private final Map<String, int[]> shapes = new LinkedHashMap<>();

  RandomModel(long seed) {
    Random random = new Random(seed);
    matrix(random, "model.embed_tokens.weight", VOCABULARY, HIDDEN);
    for (int i = 0; i < LAYERS; i++) {
      String prefix = "model.layers." + i + ".";
      gain(random, prefix + "input_layernorm.weight");
      matrix(random, prefix + "self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN);
      matrix(random, prefix + "self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN);
      matrix(random, prefix + "self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN);
      matrix(random, prefix + "self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM);
      gain(random, prefix + "post_attention_layernorm.weight");
      matrix(random, prefix + "mlp.gate_proj.weight", INTERMEDIATE, HIDDEN);
      matrix(random, prefix + "mlp.up_proj.weight", INTERMEDIATE, HIDDEN);
      matrix(random, prefix + "mlp.down_proj.weight", HIDDEN, INTERMEDIATE);
    }
    gain(random, "model.norm.weight");
    matrix(random, "lm_head.weight", VOCABULARY, HIDDEN);
  }

  private void matrix(Random random, String name, int rows, int cols) {
    add(name, rows, cols, random, 0, 1.5 / Math.sqrt(cols));
  }

  private void gain(Random random, String name) {
    add(name, 1, HIDDEN, random, 1, 0.1);
  }

  private void add(String name, int rows, int cols, Random random, double mean, double deviation) {
    float[] values = new float[rows * cols];
    for (int i = 0; i < values.length; i++) {
      // Of bfloat16's precision.
      float value = (float) (mean + deviation * random.nextGaussian());
      values[i] = Float.intBitsToFloat(Float.floatToRawIntBits(value) & 0xffff0000);
    }
    tensors.put(name, values);
    shapes.put(name, new int[] {rows, cols});
  }

  /** Writes config.json and two .safetensors files, one in bfloat16 and one in float. */
  void write(Path folder) throws IOException {
    Files.writeString(
        folder.resolve("config.json"),
        String.format(
            "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d,"
                + " \"num_hidden_layers\": %d, \"num_attention_heads\": %d,"
                + " \"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": %d,"
                + " \"max_position_embeddings\": %d, \"rms_norm_eps\": %g, \"rope_theta\": 10000,"
                + " \"eos_token_id\": [%d, %d], \"tie_word_embeddings\": false}",
            HIDDEN,
            INTERMEDIATE,
            LAYERS,
            HEADS,
            KV_HEADS,
            HEAD_DIM,
            VOCABULARY,
            CONTEXT,
            EPSILON,
            VOCABULARY,
            VOCABULARY + 1));
    write(folder.resolve("model-1.safetensors"), true);
    write(folder.resolve("model-2.safetensors"), false);
    String words =
        IntStream.range(0, VOCABULARY)
            .mapToObj(i -> "\"w" + i + "\": " + i)
            .collect(Collectors.joining(", "));
    Files.writeString(
        folder.resolve("tokenizer.json"),
        "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null,"
            + " \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"post_processor\": null,"
            + " \"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"w0\","
            + " \"vocab\": {"
            + words
            + "}}}");
  }

  private void write(Path file, boolean bfloat16) throws IOException {
    StringBuilder header = new StringBuilder("{\"__metadata__\": {\"format\": \"pt\"}");
    ByteArrayOutputStream data = new ByteArrayOutputStream();
    for (Map.Entry<String, float[]> tensor : tensors.entrySet()) {
      String name = tensor.getKey();
      if (name.contains("layers.0") != bfloat16) {
        continue;
      }
      int[] shape = shapes.get(name);
      int from = data.size();
      for (float value : tensor.getValue()) {
        ByteBuffer bytes = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putFloat(value);
        data.write(bytes.array(), bfloat16 ? 2 : 0, bfloat16 ? 2 : 4);
      }
      header.append(
          String.format(
              ", \"%s\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [%d, %d]}",
              name,
              bfloat16 ? "BF16" : "F32",
              shape[0] == 1 ? "[" + shape[1] + "]" : "[" + shape[0] + ", " + shape[1] + "]",
              from,
              data.size()));
    }
    byte[] text = header.append("}").toString().getBytes("UTF-8");
    ByteBuffer all = ByteBuffer.allocate(8 + text.length + data.size());
    all.order(ByteOrder.LITTLE_ENDIAN).putLong(text.length).put(text).put(data.toByteArray());
    Files.write(file, all.array());
  }

  /**
   * Returns the logits after the last token, computed the plain way: no cache, one token at a time.
   */
  float[] logits(int[] tokens) {
    double[][] x = new double[tokens.length][];
    for (int i = 0; i < tokens.length; i++) {
      x[i] = new double[HIDDEN];
      for (int j = 0; j < HIDDEN; j++) {
        x[i][j] = tensors.get("model.embed_tokens.weight")[tokens[i] * HIDDEN + j];
      }
    }
    for (int layer = 0; layer < LAYERS; layer++) {
      attend("model.layers." + layer + ".", x);
      feed("model.layers." + layer + ".", x);
    }
    double[] last = norm(x[tokens.length - 1], "model.norm.weight");
    double[] result = multiply(last, "lm_head.weight");
    float[] logits = new float[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) {
      logits[i] = (float) result[i];
    }
    return logits;
  }

  private void attend(String prefix, double[][] x) {
    double[][] queries = new double[x.length][];
    double[][] keys = new double[x.length][];
    double[][] values = new double[x.length][];
    for (int i = 0; i < x.length; i++) {
      double[] h = norm(x[i], prefix + "input_layernorm.weight");
      queries[i] = turn(multiply(h, prefix + "self_attn.q_proj.weight"), i);
      keys[i] = turn(multiply(h, prefix + "self_attn.k_proj.weight"), i);
      values[i] = multiply(h, prefix + "self_attn.v_proj.weight");
    }
    for (int i = 0; i < x.length; i++) {
      double[] found = new double[HEADS * HEAD_DIM];
      for (int head = 0; head < HEADS; head++) {
        int kv = head / (HEADS / KV_HEADS) * HEAD_DIM;
        double[] weights = new double[i + 1];
        double sum = 0;
        for (int j = 0; j <= i; j++) {
          double score = 0;
          for (int k = 0; k < HEAD_DIM; k++) {
            score += queries[i][head * HEAD_DIM + k] * keys[j][kv + k];
          }
          weights[j] = Math.exp(score / Math.sqrt(HEAD_DIM));
          sum += weights[j];
        }
        for (int j = 0; j <= i; j++) {
          for (int k = 0; k < HEAD_DIM; k++) {
            found[head * HEAD_DIM + k] += weights[j] / sum * values[j][kv + k];
          }
        }
      }
      add(x[i], multiply(found, prefix + "self_attn.o_proj.weight"));
    }
  }

  private void feed(String prefix, double[][] x) {
    for (double[] row : x) {
      double[] h = norm(row, prefix + "post_attention_layernorm.weight");
      double[] gate = multiply(h, prefix + "mlp.gate_proj.weight");
      double[] up = multiply(h, prefix + "mlp.up_proj.weight");
      for (int i = 0; i < INTERMEDIATE; i++) {
        up[i] *= gate[i] / (1 + Math.exp(-gate[i]));
      }
      add(row, multiply(up, prefix + "mlp.down_proj.weight"));
    }
  }

  private static double[] turn(double[] vector, int position) {
    double[] turned = new double[vector.length];
    int half = HEAD_DIM / 2;
    for (int at = 0; at < vector.length; at += HEAD_DIM) {
      for (int i = 0; i < half; i++) {
        double angle = position * Math.pow(10000, -2.0 * i / HEAD_DIM);
        turned[at + i] = vector[at + i] * Math.cos(angle) - vector[at + half + i] * Math.sin(angle);
        turned[at + half + i] =
            vector[at + half + i] * Math.cos(angle) + vector[at + i] * Math.sin(angle);
      }
    }
    return turned;
  }

  private static void add(double[] to, double[] from) {
    for (int i = 0; i < to.length; i++) {
      to[i] += from[i];
    }
  }

  private double[] norm(double[] x, String gain) {
    double squares = 0;
    for (double value : x) {
      squares += value * value;
    }
    double[] result = new double[x.length];
    for (int i = 0; i < x.length; i++) {
      result[i] = x[i] / Math.sqrt(squares / x.length + EPSILON) * tensors.get(gain)[i];
    }
    return result;
  }

  private double[] multiply(double[] x, String name) {
    float[] weights = tensors.get(name);
    double[] result = new double[weights.length / x.length];
    for (int i = 0; i < result.length; i++) {
      for (int j = 0; j < x.length; j++) {
        result[i] += weights[i * x.length + j] * x[j];
      }
    }
    return result;
  }
}
