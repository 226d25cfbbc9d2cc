// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.matmul.HostMatrix;

/**
 * The kernels of one rank on one kind of device. Each method adds launches for a step's rows to a
 * pipeline. A row is a token of a sequence, described by {@link StepRows}; its results depend only
 * on earlier rows of its sequence, so they are the same in any batch.
 *
 * <p>Matrices of activations have a row for each row of the step.
 */
interface Kernels extends AutoCloseable {
  /** A matrix of weights on the device. */
  interface Weights {}

  /**
   * The steps of a layer besides RoPE and the softmax.
   *
   * @param bias of all three, one after the other; null to add none
   * @param queryGain of a norm of each head's query; null for no norm
   * @param keyGain of a norm of each head's key; null for no norm
   * @param window how many tokens up to its own a token attends to; 0 for all
   */
  record HeadWeights(Weights bias, Weights queryGain, Weights keyGain, int window) {}

  /**
   * An addition to the residual stream.
   *
   * @param product a row for each row of the step
   * @param bias added to each row; null to add none
   * @param ofRanks whether the product is this rank's part of a sum over all ranks; only if {@link
   *     #addsRanks} returns true
   */
  record Delta(DeviceBuffer product, Weights bias, boolean ofRanks) {}

  /** The use of weights. */
  enum Use {
    /** To be read: an embedding, the gains of a norm, or a bias. */
    READ,
    /** To multiply by, which gives activations. */
    ACTIVATIONS,
    /** To multiply by, which gives this rank's part of activations that all ranks add up. */
    PARTIAL,
    /** To multiply by, which gives logits of FLOAT32. */
    LOGITS,
    /** A gate and an up matrix, for {@link #multiplyGated} without a bias. */
    GATED
  }

  /** Returns the type of activations, also of those that ranks sum. */
  DataType type();

  /** Loads matrices of equal width, stacked. */
  Weights load(Use use, HostMatrix... stacked);

  /**
   * Returns the number of rows that a buffer of activations needs for a step of {@code rows} rows.
   */
  default int roomFor(int rows) {
    return rows;
  }

  /** Prepares for the ranks of a generation, which all call this. Blocks meanwhile. */
  default void join(RankGroup group) {}

  /** Returns whether {@link #addNorm} can add the parts of all ranks for this number of rows. */
  default boolean addsRanks(int rows) {
    return false;
  }

  /** {@code out = table[token]}, the residual stream; each step's first kernel. */
  Pipeline embed(Pipeline before, int rows, Weights table, DeviceBuffer out);

  /**
   * {@code x += delta; out = RMSNorm(x) * gain}; x, the residual stream, is FLOAT32.
   *
   * @param delta null to add nothing
   */
  Pipeline addNorm(
      Pipeline before, int rows, DeviceBuffer x, Delta delta, Weights gain, DeviceBuffer out);

  /**
   * {@code out = in * weights^T}. The format of {@code out} is private to these kernels, except for
   * parts that ranks sum.
   */
  Pipeline multiply(Pipeline before, int rows, DeviceBuffer in, Weights weights, DeviceBuffer out);

  /**
   * Turns queries and keys by their position, stores keys and values in the cache, and attends.
   *
   * @param qkv queries, keys and values of this rank's heads, side by side
   * @param out what this rank's heads found, side by side
   */
  Pipeline attend(
      Pipeline before, int rows, int layer, HeadWeights own, DeviceBuffer qkv, DeviceBuffer out);

  /**
   * {@code out = silu(gate) * up}, of the products with weights.
   *
   * @param weights for {@link Use#GATED}, or {@link Use#ACTIVATIONS} if there is a bias
   * @param bias of both products, one after the other; null to add none
   * @param gateAndUp room for both, side by side
   */
  Pipeline multiplyGated(
      Pipeline before,
      int rows,
      DeviceBuffer in,
      Weights weights,
      Weights bias,
      DeviceBuffer gateAndUp,
      DeviceBuffer out);

  /**
   * The data from which tokens are chosen: a row for each row of the step that gets a next token.
   *
   * @param logits of this rank's part of the vocabulary; FLOAT32
   * @param most the largest logit; FLOAT32
   * @param coarse masses of level 0: how likely tokens are, by their distance from the most likely
   *     one, in {@link Nucleus#BINS} bins; INT64 in fixed point, so that their sum over the ranks
   *     is exact in any order
   * @param fine masses of level 1, within the coarse bin that {@code limits} names
   * @param limits the bin with which masses reach {@code topP}; INT32. After level 0 the coarse
   *     one, after level 1 the largest distance of a token that may be chosen
   * @param best the best token as {@link Nucleus#candidate}; INT64
   */
  record Choice(
      DeviceBuffer logits,
      DeviceBuffer most,
      DeviceBuffer coarse,
      DeviceBuffer fine,
      DeviceBuffer limits,
      DeviceBuffer best) {

    DeviceBuffer masses(int level) {
      return level == 0 ? coarse : fine;
    }
  }

  /** Finds the largest logit of this rank. */
  Pipeline most(Pipeline before, int rows, Choice choice);

  /** Adds up the masses of this rank's tokens on a level; {@code most} is that of all ranks. */
  Pipeline masses(Pipeline before, int rows, int level, Choice choice);

  /** Finds the limit on a level; its masses are those of all ranks. */
  Pipeline limit(Pipeline before, int rows, int level, Choice choice);

  /**
   * Finds this rank's best token: the largest logit, divided by the temperature and with Gumbel
   * noise from the row's seed, if it has a temperature.
   *
   * @param nucleus whether limits were found; if not, every row's {@code topP} is 1
   */
  Pipeline best(Pipeline before, int rows, boolean nucleus, Choice choice);

  /** Stores each row's next token, from {@code best} of all ranks, in the {@link StepRows}. */
  Pipeline choose(Pipeline before, int rows, Choice choice);

  @Override
  void close();
}
