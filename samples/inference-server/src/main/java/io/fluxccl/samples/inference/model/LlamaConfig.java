// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;

/**
 * The shape of a model of the families Llama, Mistral, Qwen 2 and Qwen 3, from {@code config.json}.
 *
 * @param hidden the width of the residual stream
 * @param intermediate the width between the projections of a layer's MLP
 * @param windows by layer, how many tokens up to its own a token attends to; 0 for all
 * @param heads of queries
 * @param kvHeads of keys and values; divides {@code heads}
 * @param headDim the width of a head
 * @param vocabulary how many tokens there are
 * @param context the most tokens of a sequence
 * @param epsilon of RMSNorm
 * @param rope the rotation of queries and keys
 * @param extras optional parts of the layers
 * @param tied whether the output projection is the embedding, unless the weights have another
 * @param ends tokens that end a text
 */
public record LlamaConfig(
    int hidden,
    int intermediate,
    List<Integer> windows,
    int heads,
    int kvHeads,
    int headDim,
    int vocabulary,
    int context,
    float epsilon,
    Rope rope,
    Set<Extra> extras,
    boolean tied,
    Set<Integer> ends) {

  /** An optional part of all layers. */
  public enum Extra {
    /** Biases of the projections to queries, keys and values. */
    QKV_BIAS,
    /** A bias of the projection out of attention. */
    OUT_BIAS,
    /** Biases of the MLP's projections. */
    MLP_BIAS,
    /** Norms of each head's queries and keys. */
    HEAD_NORMS
  }

  /**
   * The heads of one rank: consecutive ones of queries, and those of keys and values that these
   * need. Each of the latter has equally many of the former.
   */
  public record Heads(int first, int count, int firstKv, int kvCount) {
    /** Returns how many heads of queries share one of keys and values. */
    public int group() {
      return count / kvCount;
    }

    /** Returns the heads of queries, keys and values together. */
    public int ofAll() {
      return count + 2 * kvCount;
    }
  }

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
          "max_sequence_length",
          "model_max_length",
          "name_or_path",
          "neftune_noise_alpha",
          "pad_token_id",
          "return_dict",
          "tokenizer_class",
          "torch_dtype",
          "transformers.js_config",
          "transformers_version",
          "unk_token_id",
          "unsloth_fixed",
          "unsloth_version",
          "use_cache");

  private static final int MOST_LAYERS = 4096;
  private static final int MOST_RANKS = 1024;

  /** The kernels take the inputs of a product four at a time. */
  private static final int WIDTHS = 4;

  private static final String KV_HEADS = "num_key_value_heads";
  private static final String HEAD_DIM = "head_dim";
  private static final String WINDOW = "sliding_window";
  private static final int USUAL_WINDOW = 4096;
  private static final int QWEN3_HEAD_DIM = 128;
  private static final int QWEN_FULL_LAYERS = 28;

  private enum Family {
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3
  }

  /**
   * Reads a model's folder, by the rules of transformers 5.
   *
   * @throws IllegalArgumentException if a key of {@code config.json} is missing, has a value that
   *     makes no sense, or is not implemented; the message names it
   */
  public static LlamaConfig read(Path folder) throws IOException {
    ConfigFile file = ConfigFile.open(folder.resolve("config.json"));
    Family family =
        switch (file.text("model_type", "")) {
          case "llama" -> Family.LLAMA;
          case "mistral" -> Family.MISTRAL;
          case "qwen2" -> Family.QWEN2;
          case "qwen3" -> Family.QWEN3;
          default ->
              throw file.wrong(
                  "model_type", "this server supports only llama, mistral, qwen2 and qwen3");
        };
    file.requireOnly("hidden_act", "silu");
    file.requireOnly("pretraining_tp", 1);
    file.requireOnly("is_causal", true);
    int hidden = file.count("hidden_size");
    int heads = file.count("num_attention_heads");
    boolean mayLackKvHeads = family == Family.LLAMA || file.isNull(KV_HEADS);
    int kvHeads = mayLackKvHeads ? file.count(KV_HEADS, heads) : file.count(KV_HEADS);
    if (heads % kvHeads != 0) {
      throw file.wrong(KV_HEADS, "it must divide num_attention_heads=" + heads);
    }
    int context = file.count("max_position_embeddings");
    int headDim = headDim(file, family, hidden, heads);
    LlamaConfig config =
        new LlamaConfig(
            hidden,
            file.count("intermediate_size"),
            windows(file, family, context),
            heads,
            kvHeads,
            headDim,
            file.count("vocab_size"),
            context,
            (float) file.positive("rms_norm_eps", 1e-6),
            Rope.read(file, headDim, context),
            extras(file, family),
            file.flag("tie_word_embeddings"),
            ends(folder, file));
    file.refuseOthers(WITHOUT_EFFECT);
    return config;
  }

  private static int headDim(ConfigFile file, Family family, int hidden, int heads) {
    boolean isGiven = family == Family.QWEN3 || file.has(HEAD_DIM);
    int headDim = file.count(HEAD_DIM, isGiven ? QWEN3_HEAD_DIM : Math.max(1, hidden / heads));
    if (!isGiven && hidden % heads != 0) {
      throw file.wrong("hidden_size", "without head_dim, num_attention_heads must divide it");
    }
    if (headDim % 2 != 0) {
      throw file.wrong(HEAD_DIM, "heads of " + headDim + " elements; the number must be even");
    }
    if ((long) heads * headDim > ConfigFile.MOST) {
      throw file.wrong(HEAD_DIM, "all heads must have at most " + ConfigFile.MOST + " elements");
    }
    return headDim;
  }

  private static List<Integer> windows(ConfigFile file, Family family, int context) {
    int layers = file.count("num_hidden_layers", 1, MOST_LAYERS);
    if (family == Family.LLAMA) {
      return Collections.nCopies(layers, 0);
    }
    int given = file.isNull(WINDOW) ? 0 : file.count(WINDOW, USUAL_WINDOW);
    int window = given < context ? given : 0;
    if (family == Family.MISTRAL) {
      return Collections.nCopies(layers, window);
    }
    boolean isUsed = file.flag("use_sliding_window") && given > 0;
    String key = "max_window_layers";
    int full = file.has(key) ? file.count(key, 0, ConfigFile.MOST) : QWEN_FULL_LAYERS;
    key = "layer_types";
    if (!file.has(key)) {
      return IntStream.range(0, layers).mapToObj(i -> isUsed && i >= full ? window : 0).toList();
    }
    List<String> types = file.names(key);
    Set<String> known =
        isUsed ? Set.of("full_attention", "sliding_attention") : Set.of("full_attention");
    if (types.size() != layers || !known.containsAll(types)) {
      throw file.wrong(key, "each of " + layers + " layers must be one of " + new TreeSet<>(known));
    }
    return types.stream().map(type -> type.equals("sliding_attention") ? window : 0).toList();
  }

  private static Set<Extra> extras(ConfigFile file, Family family) {
    Set<Extra> extras = EnumSet.noneOf(Extra.class);
    boolean hasKey = family == Family.LLAMA || family == Family.QWEN3;
    if (hasKey && file.flag("attention_bias")) {
      extras.addAll(Set.of(Extra.QKV_BIAS, Extra.OUT_BIAS));
    }
    if (family == Family.LLAMA && file.flag("mlp_bias")) {
      extras.add(Extra.MLP_BIAS);
    }
    if (family == Family.QWEN2) {
      extras.add(Extra.QKV_BIAS);
    }
    if (family == Family.QWEN3) {
      extras.add(Extra.HEAD_NORMS);
    }
    return extras;
  }

  /** Returns how many layers there are. */
  public int layers() {
    return windows.size();
  }

  /** Returns whether layers have something that not all models have. */
  public boolean has(Extra extra) {
    return extras.contains(extra);
  }

  /**
   * Returns the heads of a rank. Ranks divide the heads of keys and values, or, if there are more
   * ranks than these, the heads of queries of each, whose keys and values several ranks then have.
   */
  public Heads headsOf(int rank, int nRanks) {
    int group = heads / kvHeads;
    int firstKv = (int) ((long) rank * kvHeads / nRanks);
    if (nRanks <= kvHeads) {
      int count = (int) ((rank + 1L) * kvHeads / nRanks) - firstKv;
      return new Heads(firstKv * group, count * group, firstKv, count);
    }
    int begin = firstRankOf(firstKv, nRanks);
    int sharing = firstRankOf(firstKv + 1, nRanks) - begin;
    int from = (rank - begin) * group / sharing;
    int to = (rank - begin + 1) * group / sharing;
    return new Heads(firstKv * group + from, to - from, firstKv, 1);
  }

  private int firstRankOf(int kvHead, int nRanks) {
    return (int) (((long) kvHead * nRanks + kvHeads - 1) / kvHeads);
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
    for (int i = 0; i < layers(); i++) {
      String layer = "model.layers." + i + ".";
      weights.get(layer + "input_layernorm.weight", 1, hidden);
      String self = layer + "self_attn.";
      require(weights, self + "q_proj", heads * headDim, hidden, Extra.QKV_BIAS);
      require(weights, self + "k_proj", kvHeads * headDim, hidden, Extra.QKV_BIAS);
      require(weights, self + "v_proj", kvHeads * headDim, hidden, Extra.QKV_BIAS);
      require(weights, self + "o_proj", hidden, heads * headDim, Extra.OUT_BIAS);
      if (has(Extra.HEAD_NORMS)) {
        weights.get(self + "q_norm.weight", 1, headDim);
        weights.get(self + "k_norm.weight", 1, headDim);
      }
      weights.get(layer + "post_attention_layernorm.weight", 1, hidden);
      require(weights, layer + "mlp.gate_proj", intermediate, hidden, Extra.MLP_BIAS);
      require(weights, layer + "mlp.up_proj", intermediate, hidden, Extra.MLP_BIAS);
      require(weights, layer + "mlp.down_proj", hidden, intermediate, Extra.MLP_BIAS);
    }
    weights.get("model.norm.weight", 1, hidden);
    weights.get(outputName(weights), vocabulary, hidden);
  }

  private void require(TensorSource weights, String name, int rows, int cols, Extra bias) {
    weights.get(name + ".weight", rows, cols);
    if (has(bias)) {
      weights.get(name + ".bias", rows, 1);
    }
  }

  /** Returns the tensor of the output projection. */
  public String outputName(TensorSource weights) {
    String own = "lm_head.weight";
    return tied && !weights.has(own) ? "model.embed_tokens.weight" : own;
  }

  /**
   * Refuses a number of ranks among which the model can't be divided.
   *
   * @throws IllegalArgumentException that lists the numbers that can share it
   */
  public void requireDivisible(int nRanks) {
    if (!divides(nRanks)) {
      List<Integer> possible =
          IntStream.rangeClosed(1, Math.min(heads, MOST_RANKS))
              .filter(this::divides)
              .boxed()
              .toList();
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "ranks=%d; they must be at most heads=%d and divide vocabulary=%d, and %d times as"
                  + " many intermediate=%d; hidden=%d and each rank's heads * headDim=%d must be"
                  + " multiples of %d: %s",
              nRanks,
              heads,
              vocabulary,
              WIDTHS,
              intermediate,
              hidden,
              headDim,
              WIDTHS,
              possible.isEmpty() ? "no number does" : "possible are " + possible));
    }
  }

  private boolean divides(int nRanks) {
    return nRanks >= 1
        && nRanks <= Math.min(heads, MOST_RANKS)
        && vocabulary % nRanks == 0
        && intermediate % (WIDTHS * nRanks) == 0
        && hidden % WIDTHS == 0
        && IntStream.range(0, nRanks)
            .allMatch(rank -> headsOf(rank, nRanks).count() * headDim % WIDTHS == 0);
  }
}
