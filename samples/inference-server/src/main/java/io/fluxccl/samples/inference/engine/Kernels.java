package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.samples.inference.model.Tensor;

/**
 * The kernels of one rank on one kind of device. Each method adds launches for a step's rows to a
 * pipeline. A row is a token of a sequence, described by {@link StepRows}; its results depend on no
 * other row but those in front of it in its sequence, so they are the same in any batch.
 *
 * <p>Matrices of activations have a row for each row of the step.
 */
interface Kernels extends AutoCloseable {
  /** A matrix of weights on the device. */
  interface Weights {
    /** Returns the width of its product. */
    int outputs();

    /** Returns the width of its input. */
    int inputs();
  }

  /** Returns the type of activations, also of those that ranks sum. */
  DataType type();

  /** Loads matrices of equal width, stacked, to be read. */
  Weights load(Tensor... stacked);

  /** Loads matrices of equal width, stacked, to multiply by; the product's elements are given. */
  Weights loadMatrix(DataType product, Tensor... stacked);

  /** {@code out = table[token]}, the residual stream; each step's first kernel. */
  Pipeline embed(Pipeline before, int rows, Weights table, DeviceBuffer out);

  /** {@code out = RMSNorm(x) * gain}. */
  Pipeline norm(Pipeline before, int rows, DeviceBuffer x, Weights gain, DeviceBuffer out);

  /** {@code x += delta; out = RMSNorm(x) * gain}; x, the residual stream, is FLOAT32. */
  Pipeline addNorm(
      Pipeline before,
      int rows,
      DeviceBuffer x,
      DeviceBuffer delta,
      Weights gain,
      DeviceBuffer out);

  /** {@code out = in * weights^T}, of {@link #loadMatrix}. */
  Pipeline multiply(Pipeline before, int rows, DeviceBuffer in, Weights weights, DeviceBuffer out);

  /**
   * Turns queries and keys by their position, stores keys and values in the cache, and attends.
   *
   * @param qkv queries, keys and values of this rank's heads, side by side
   * @param out what this rank's heads found, side by side
   */
  Pipeline attend(Pipeline before, int rows, int layer, DeviceBuffer qkv, DeviceBuffer out);

  /** {@code out = silu(gate) * up}; gate and up are side by side. */
  Pipeline gate(Pipeline before, int rows, DeviceBuffer gateAndUp, DeviceBuffer out);

  /** {@code most = } the largest logit of this rank's part of the vocabulary; all are FLOAT32. */
  Pipeline most(Pipeline before, int rows, DeviceBuffer logits, DeviceBuffer most);

  /**
   * Adds up the probability of this rank's tokens by how far they are behind the most likely one,
   * in {@link Nucleus#BINS} bins a row, INT64 in fixed point, so that the sum is exact in any
   * order.
   *
   * @param level 0: coarse; 1: fine, within the coarse bin that {@code limits} names
   * @param most of all ranks
   * @param limits INT32; not read on level 0
   * @param masses written on this level
   */
  Pipeline masses(
      Pipeline before,
      int rows,
      int level,
      DeviceBuffer logits,
      DeviceBuffer most,
      DeviceBuffer limits,
      DeviceBuffer masses);

  /**
   * Finds the bin with which the masses reach {@code topP}.
   *
   * @param level 0: the coarse bin; 1: the distance, which is the coarse bin and the fine one
   * @param coarse the masses of all ranks on level 0
   * @param fine the masses of all ranks on level 1; not read on level 0
   */
  Pipeline limit(
      Pipeline before,
      int rows,
      int level,
      DeviceBuffer coarse,
      DeviceBuffer fine,
      DeviceBuffer limits);

  /**
   * Finds this rank's best token of each row: the largest logit, divided by the temperature and
   * with Gumbel noise from the row's seed, if it has a temperature. Written as {@link
   * Nucleus#candidate}.
   *
   * @param most of all ranks; null if every row's {@code topP} is 1
   * @param limits the largest distance of a token that may win; null with {@code most}
   */
  Pipeline best(
      Pipeline before,
      int rows,
      DeviceBuffer logits,
      DeviceBuffer most,
      DeviceBuffer limits,
      DeviceBuffer best);

  /** Stores each row's next token, from {@code best} of all ranks, in the {@link StepRows}. */
  Pipeline choose(Pipeline before, int rows, DeviceBuffer best);

  @Override
  void close();
}
