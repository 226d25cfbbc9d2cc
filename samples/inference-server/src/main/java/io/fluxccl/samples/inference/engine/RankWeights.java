// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.samples.inference.engine.Kernels.Use;
import io.fluxccl.samples.inference.engine.Kernels.Weights;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.LlamaConfig.Extra;
import io.fluxccl.samples.inference.model.TensorSource;
import java.util.Arrays;
import java.util.stream.Stream;

/** Loads one rank's part of a model's tensors. */
final class RankWeights {
  private final LlamaConfig config;
  private final LlamaConfig.Heads heads;
  private final TensorSource weights;
  private final Kernels kernels;
  private final int rank;
  private final int nRanks;

  RankWeights(LlamaConfig config, TensorSource weights, Kernels kernels, int rank, int nRanks) {
    this.config = config;
    this.heads = config.headsOf(rank, nRanks);
    this.weights = weights;
    this.kernels = kernels;
    this.rank = rank;
    this.nRanks = nRanks;
  }

  /** A layer's weights on this rank; a bias is null if the model has none. */
  record Layer(
      Weights attentionGain,
      Weights qkv,
      Kernels.HeadWeights own,
      Weights attentionOut,
      Weights outBias,
      Weights mlpGain,
      Weights gateAndUp,
      Weights gateAndUpBias,
      Weights down,
      Weights downBias) {}

  /** Returns this rank's rows of a tensor that the ranks divide equally. */
  HostMatrix[] share(String name, int rows, int cols) {
    int count = rows / nRanks;
    return weights.rows(name, rows, cols, rank * count, count);
  }

  /** Returns the rows of this rank's heads of queries. */
  private HostMatrix[] queries(String name, int cols) {
    int dim = config.headDim();
    return weights.rows(name, config.heads() * dim, cols, heads.first() * dim, heads.count() * dim);
  }

  /** Returns the rows of this rank's heads of keys or values. */
  private HostMatrix[] keys(String name, int cols) {
    int dim = config.headDim();
    return weights.rows(
        name, config.kvHeads() * dim, cols, heads.firstKv() * dim, heads.kvCount() * dim);
  }

  private static HostMatrix[] cols(HostMatrix[] pieces, int from, int count) {
    return Arrays.stream(pieces)
        .map(
            piece ->
                new HostMatrix(
                    piece.data(),
                    piece.type(),
                    piece.rows(),
                    count,
                    piece.stride(),
                    piece.first() + from))
        .toArray(HostMatrix[]::new);
  }

  private Weights load(Use use, HostMatrix[]... stacked) {
    return kernels.load(use, Stream.of(stacked).flatMap(Stream::of).toArray(HostMatrix[]::new));
  }

  private Weights gain(String name, int width) {
    return load(Use.READ, weights.get(name + ".weight", 1, width));
  }

  private Weights bias(Extra extra, String name) {
    return config.has(extra)
        ? load(Use.READ, weights.get(name + ".bias", config.hidden(), 1))
        : null;
  }

  Layer layer(int number) {
    String layer = "model.layers." + number + ".";
    String mlp = layer + "mlp.";
    int hidden = config.hidden();
    int units = config.intermediate();
    int dim = config.headDim();
    String self = layer + "self_attn.";
    HostMatrix[] out = weights.get(self + "o_proj.weight", hidden, config.heads() * dim);
    HostMatrix[] down = weights.get(mlp + "down_proj.weight", hidden, units);
    boolean mlpBias = config.has(Extra.MLP_BIAS);
    return new Layer(
        gain(layer + "input_layernorm", hidden),
        load(
            Use.ACTIVATIONS,
            queries(self + "q_proj.weight", hidden),
            keys(self + "k_proj.weight", hidden),
            keys(self + "v_proj.weight", hidden)),
        headWeights(number, self),
        load(Use.PARTIAL, cols(out, heads.first() * dim, heads.count() * dim)),
        bias(Extra.OUT_BIAS, self + "o_proj"),
        gain(layer + "post_attention_layernorm", hidden),
        load(
            mlpBias ? Use.ACTIVATIONS : Use.GATED,
            share(mlp + "gate_proj.weight", units, hidden),
            share(mlp + "up_proj.weight", units, hidden)),
        mlpBias
            ? load(
                Use.READ,
                share(mlp + "gate_proj.bias", units, 1),
                share(mlp + "up_proj.bias", units, 1))
            : null,
        load(Use.PARTIAL, cols(down, rank * (units / nRanks), units / nRanks)),
        bias(Extra.MLP_BIAS, mlp + "down_proj"));
  }

  private Kernels.HeadWeights headWeights(int layer, String self) {
    boolean hasNorms = config.has(Extra.HEAD_NORMS);
    return new Kernels.HeadWeights(
        config.has(Extra.QKV_BIAS)
            ? load(
                Use.READ,
                queries(self + "q_proj.bias", 1),
                keys(self + "k_proj.bias", 1),
                keys(self + "v_proj.bias", 1))
            : null,
        hasNorms ? gain(self + "q_norm", config.headDim()) : null,
        hasNorms ? gain(self + "k_norm", config.headDim()) : null,
        config.windows().get(layer));
  }
}
