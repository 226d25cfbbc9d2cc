// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.IntStream;

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

  /** Keys that name a model, or belong to training, caches or other programs. */
  private static final Set<String> WITHOUT_EFFECT =
      Set.of(
          "_attn_implementation_autoset",
          "_name_or_path",
          "architectures",
          "attention_dropout",
          "bos_token_id",
          "dtype",
          "initializer_range",
          "is_llama_config",
          "name_or_path",
          "neftune_noise_alpha",
          "pad_token_id",
          "torch_dtype",
          "transformers.js_config",
          "transformers_version",
          "unk_token_id",
          "unsloth_fixed",
          "unsloth_version",
          "use_cache");

  /** Bounds the table of a sequence's pages. */
  private static final int MOST_CONTEXT = 1 << 24;

  /** The kernels take the inputs of a product four at a time. */
  private static final int WIDTHS = 4;

  /**
   * Reads a model's folder.
   *
   * @throws IllegalArgumentException if a key of {@code config.json} is missing, has a value that
   *     makes no sense, or is not implemented; the message names it
   */
  public static LlamaConfig read(Path folder) throws IOException {
    ConfigFile file = ConfigFile.open(folder.resolve("config.json"));
    if (!file.text("model_type", "").equals("llama")) {
      throw file.wrong("model_type", "this server supports only llama");
    }
    file.requireOnly("hidden_act", "silu");
    file.requireOnly("pretraining_tp", 1);
    file.requireOnly("is_causal", true);
    int hidden = file.count("hidden_size");
    int heads = file.count("num_attention_heads");
    int kvHeads = file.count("num_key_value_heads", heads);
    if (heads % kvHeads != 0) {
      throw file.wrong("num_key_value_heads", "it must divide num_attention_heads=" + heads);
    }
    int headDim = file.count("head_dim", Math.max(1, hidden / heads));
    if (headDim % 2 != 0) {
      throw file.wrong("head_dim", "heads of " + headDim + " elements; the number must be even");
    }
    int context = file.count("max_position_embeddings");
    if (context > MOST_CONTEXT) {
      throw file.wrong("max_position_embeddings", "this server supports up to " + MOST_CONTEXT);
    }
    LlamaConfig config =
        new LlamaConfig(
            hidden,
            file.count("intermediate_size"),
            file.count("num_hidden_layers"),
            heads,
            kvHeads,
            headDim,
            file.count("vocab_size"),
            context,
            (float) file.positive("rms_norm_eps", 1e-6),
            Rope.inverseFrequencies(file, headDim),
            file.flag("tie_word_embeddings"),
            ends(folder, file));
    file.refuseOthers(WITHOUT_EFFECT);
    return config;
  }

  /** Returns the tokens that end a text: generation_config.json precedes config.json. */
  private static Set<Integer> ends(Path folder, ConfigFile file) throws IOException {
    String key = "eos_token_id";
    Set<Integer> own = file.tokens(key);
    Path generation = folder.resolve("generation_config.json");
    if (Files.exists(generation)) {
      Set<Integer> preceding = ConfigFile.open(generation).tokens(key);
      return Set.copyOf(preceding.isEmpty() ? own : preceding);
    }
    return Set.copyOf(own);
  }

  /**
   * Refuses weights that lack a tensor of this model, or have one of another shape.
   *
   * @throws IllegalArgumentException naming the tensor
   */
  public void requireTensors(TensorSource weights) {
    weights.get("model.embed_tokens.weight", vocabulary, hidden);
    for (int i = 0; i < layers; i++) {
      String layer = "model.layers." + i + ".";
      weights.get(layer + "input_layernorm.weight", 1, hidden);
      weights.get(layer + "self_attn.q_proj.weight", heads * headDim, hidden);
      weights.get(layer + "self_attn.k_proj.weight", kvHeads * headDim, hidden);
      weights.get(layer + "self_attn.v_proj.weight", kvHeads * headDim, hidden);
      weights.get(layer + "self_attn.o_proj.weight", hidden, heads * headDim);
      weights.get(layer + "post_attention_layernorm.weight", 1, hidden);
      weights.get(layer + "mlp.gate_proj.weight", intermediate, hidden);
      weights.get(layer + "mlp.up_proj.weight", intermediate, hidden);
      weights.get(layer + "mlp.down_proj.weight", hidden, intermediate);
    }
    weights.get("model.norm.weight", 1, hidden);
    if (!tied) {
      weights.get("lm_head.weight", vocabulary, hidden);
    }
  }

  /**
   * Refuses a number of ranks among which the model can't be divided.
   *
   * @throws IllegalArgumentException that lists the numbers that can share it
   */
  public void requireDivisible(int nRanks) {
    if (!divides(nRanks)) {
      List<Integer> possible =
          IntStream.rangeClosed(1, kvHeads).filter(this::divides).boxed().toList();
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "ranks=%d; they must divide kvHeads=%d and vocabulary=%d, and %d times as many"
                  + " intermediate=%d and heads * headDim=%d; hidden=%d must be a multiple of %d: %s",
              nRanks,
              kvHeads,
              vocabulary,
              WIDTHS,
              intermediate,
              heads * headDim,
              hidden,
              WIDTHS,
              possible.isEmpty() ? "no number does" : "possible are " + possible));
    }
  }

  private boolean divides(int nRanks) {
    return nRanks >= 1
        && kvHeads % nRanks == 0
        && vocabulary % nRanks == 0
        && intermediate % (WIDTHS * nRanks) == 0
        && (heads / nRanks * headDim) % WIDTHS == 0
        && hidden % WIDTHS == 0;
  }
}
