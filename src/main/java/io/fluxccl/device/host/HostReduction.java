// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.ReduceOp;

/**
 * Element-wise reduction of memory by address, with its own scratch arrays: use one instance per
 * thread. Allocates only at the first use of a type.
 *
 * <p>Values are combined in the order of the sources, so that all ranks that reduce the same
 * sources in the same order get the same bits. Integers wrap around. Floating-point types of 8 and
 * 16 bits are combined as floats and rounded once; those of 8 bits saturate ({@link Float8}).
 * Minimum and maximum of floating-point values are NaN if one is.
 *
 * <p>The sign and payload of a NaN are an exception: of two NaNs, interpreted and compiled code may
 * return different ones.
 *
 * <p>Addresses need no alignment and are not checked. A target may be the same memory as a source,
 * but not overlap one otherwise.
 */
@Experimental
public final class HostReduction {
  private final ReductionBlock<?>[] blocks = new ReductionBlock<?>[DataType.values().length];
  private final long[] twoSources = new long[2];
  private final long[] oneTarget = new long[1];

  /** Creates an instance without scratch memory. */
  public HostReduction() {}

  /**
   * Combines two sources: {@code target = a op b}. AVG only adds; call {@link #divide} after the
   * last source.
   *
   * @param type of the elements
   * @param op how to combine
   * @param target address of the result
   * @param a address of the first source
   * @param b address of the second
   * @param count elements
   */
  public void reduce(DataType type, ReduceOp op, long target, long a, long b, long count) {
    twoSources[0] = a;
    twoSources[1] = b;
    oneTarget[0] = target;
    reduce(type, op, twoSources, 2, oneTarget, 1, count, 1);
  }

  /**
   * Combines any number of sources in their order and writes the result to several targets.
   *
   * @param type of the elements
   * @param op how to combine
   * @param sources addresses
   * @param nSources the number of sources, 1 or more
   * @param targets addresses
   * @param nTargets the number of targets
   * @param count elements
   * @param nRanksForAvg the final divisor of AVG; 1 keeps the sum
   */
  public void reduce(
      DataType type,
      ReduceOp op,
      long[] sources,
      int nSources,
      long[] targets,
      int nTargets,
      long count,
      int nRanksForAvg) {
    ReductionBlock<?> block = block(type);
    int size = type.size();
    for (long done = 0; done < count; done += ReductionBlock.LENGTH) {
      int n = (int) Math.min(ReductionBlock.LENGTH, count - done);
      long offset = done * size;
      block.load(sources[0] + offset, n);
      for (int i = 1; i < nSources; i++) {
        block.combine(op, sources[i] + offset, n);
      }
      if (op == ReduceOp.AVG && nRanksForAvg > 1) {
        block.divide(nRanksForAvg, n);
      }
      for (int i = 0; i < nTargets; i++) {
        block.store(targets[i] + offset, n);
      }
    }
  }

  /**
   * Divides elements in place: the last step of AVG after pairwise sums.
   *
   * @param type of the elements
   * @param target their address
   * @param count elements
   * @param divisor 1 or more
   */
  public void divide(DataType type, long target, long count, int divisor) {
    oneTarget[0] = target;
    reduce(type, ReduceOp.AVG, oneTarget, 1, oneTarget, 1, count, divisor);
  }

  private ReductionBlock<?> block(DataType type) {
    ReductionBlock<?> block = blocks[type.ordinal()];
    if (block == null) {
      block = ReductionBlock.of(type);
      blocks[type.ordinal()] = block;
    }
    return block;
  }
}
