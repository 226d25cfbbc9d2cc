// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.KernelStruct;

/**
 * The arguments that the kernels of dispatch and combine share: the twin of {@code ExpertTask} in
 * {@code experts.cuh}. Filled in for each call; used by the one thread that enqueues.
 */
final class ExpertTask extends KernelStruct {
  /** {@code sizeof(ExpertTask)}. */
  private static final int LENGTH = RouteArea.LENGTH + 8 * Long.BYTES + 12 * Integer.BYTES;

  private final RoutedSet set;

  /** Creates the struct, followed by a number of bytes. */
  ExpertTask(RoutedSet set, int more) {
    super(LENGTH + more);
    this.set = set;
  }

  /**
   * Fills in a batch.
   *
   * @param valueBytes bytes of a token's values
   * @param bytes of a token's whole message
   * @return this; the next value is written after the struct
   */
  ExpertTask bind(ExpertBatch batch, int valueBytes, int bytes) {
    ExpertShape shape = batch.shape();
    set.area
        .writeTo(this, set.faultAddress())
        .putAddress(batch.ids())
        .putAddress(batch.weights())
        .putAddress(batch.receivedIds())
        .putAddress(batch.receivedWeights())
        .putAddress(batch.sources())
        .putAddress(batch.perRank())
        .putAddress(batch.perExpert())
        .putAddress(batch.plan())
        .putInt(shape.tokens())
        .putInt(shape.topK())
        .putInt(shape.experts())
        .putInt(shape.capacity())
        .putInt(valueBytes)
        .putInt(sliceTokens(bytes));
    int nRanks = set.area.nRanks();
    return putDivisor(rows(bytes)).putDivisor(shape.experts() / nRanks).putDivisor(nRanks - 1);
  }

  /** Writes a {@code Divisor}. */
  private ExpertTask putDivisor(int by) {
    putInt(by).putInt(Integer.divideUnsigned(-1, by) + 1);
    return this;
  }

  private static int rows(int bytes) {
    return (int) PacketArea.Kind.LL128.rows(bytes);
  }

  private int sliceTokens(int bytes) {
    return set.area.rows() / rows(bytes);
  }

  /** Returns the rows of packets of the largest slice, to one rank. */
  long sliceRows(ExpertShape shape, int bytes) {
    return (long) Math.min(shape.tokens(), sliceTokens(bytes)) * rows(bytes);
  }
}
