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
}
