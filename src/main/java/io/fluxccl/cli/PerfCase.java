// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;

/**
 * One row: a collective and its shape, the same on every rank.
 *
 * @param collective the collective
 * @param count elements, as {@link io.fluxccl.collective.CollectiveCall} counts them; of an
 *     all-to-all-v the mean of the parts
 * @param type of the elements
 * @param op of a reduction; null for other collectives
 * @param root of those collectives that have one; 0 otherwise
 * @param hidden elements of a row of a fused all-reduce; 0 otherwise
 */
record PerfCase(
    Collective collective, long count, DataType type, ReduceOp op, int root, long hidden) {
  /** A case without rows. */
  PerfCase(Collective collective, long count, DataType type, ReduceOp op, int root) {
    this(collective, count, type, op, root, 0);
  }

  /** Returns the larger of input and output in bytes, which is the size of nccl-tests. */
  long bytes(int nRanks) {
    return new DataLayout(this, 0, nRanks).extent() * type.size();
  }

  /** Returns the larger of input and output divided by the count; 0 for a barrier. */
  static long parts(Collective collective, int nRanks) {
    PerfCase one = new PerfCase(collective, 1, DataType.UINT8, null, 0);
    return new DataLayout(one, 0, nRanks).extent();
  }

  /**
   * Returns the factor of nccl-tests that turns size over time into the bandwidth that a bus would
   * need, which is comparable between numbers of ranks.
   */
  double busFactor(int nRanks) {
    return collective.busFactor(nRanks);
  }

  /** Returns the operation for tables: {@code none} where nothing is reduced. */
  String opLabel() {
    return op == null ? "none" : op.label();
  }

  /** Returns the root for tables: -1 where there is none. */
  int rootOrNone() {
    return collective.hasRoot() ? root : -1;
  }

  /** Returns the case for messages. */
  @Override
  public String toString() {
    return collective.label()
        + (collective == Collective.BARRIER ? "" : " of " + count + " " + type.label())
        + (op == null ? "" : " (" + op.label() + ")");
  }
}
