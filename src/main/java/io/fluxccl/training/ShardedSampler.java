// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import io.fluxccl.InvalidUsage;
import java.util.Arrays;
import java.util.Random;

/**
 * Divides the examples of a data set among the ranks, in another order in each epoch. All its state
 * is a position, which is the number of examples that all ranks together have used. A group that
 * continues from a position with another number of ranks still uses each example once an epoch.
 *
 * <pre>{@code
 * ShardedSampler.Step step = sampler.step(position, group.nRanks(), 32);
 * train(step.examplesOf(group.rank()));
 * position = step.next(); // equal on all ranks; part of what ParameterSync and Checkpoint keep
 * }</pre>
 *
 * <p>Thread-safe.
 */
public final class ShardedSampler {
  private final int size;
  private final long seed;

  // The order of the epoch used last; guarded by this.
  private long epoch = -1;
  private int[] order;

  /**
   * Creates a sampler. Equal arguments yield equal orders, on every rank and every JVM.
   *
   * @param size number of examples, 1 or more
   * @param seed decides the orders, together with the number of an epoch
   */
  public ShardedSampler(int size, long seed) {
    if (size < 1) {
      throw InvalidUsage.of("ShardedSampler size=%s; give 1 or more", size);
    }
    this.size = size;
    this.seed = seed;
  }

  /** The examples of one step on all ranks. */
  public static final class Step {
    private final int[] examples;
    private final int nRanks;
    private final long epoch;
    private final long next;

    private Step(int[] examples, int nRanks, long epoch, long next) {
      this.examples = examples;
      this.nRanks = nRanks;
      this.epoch = epoch;
      this.next = next;
    }

    /**
     * Returns the numbers of a rank's examples, from 0. In the last step of an epoch, shares differ
     * by one example, and some ranks may have none.
     */
    public int[] examplesOf(int rank) {
      if (rank < 0 || rank >= nRanks) {
        throw InvalidUsage.of("examplesOf(rank=%s): the step has %s ranks", rank, nRanks);
      }
      return Arrays.copyOfRange(examples, start(rank), start(rank + 1));
    }

    private int start(int rank) {
      return (int) ((long) examples.length * rank / nRanks);
    }

    /** Returns the number of ranks that have an example. */
    public int ranksWithData() {
      return Math.min(nRanks, examples.length);
    }

    /** Returns the number of the epoch, from 0. */
    public long epoch() {
      return epoch;
    }

    /** Returns the position after this step. A step never has examples of two epochs. */
    public long next() {
      return next;
    }
  }

  /**
   * Returns the step at a position.
   *
   * @param position 0 at the start, then {@link Step#next} of the last completed step
   * @param nRanks number of ranks that share the step, 1 or more
   * @param batch examples of each rank, 1 or more
   * @throws InvalidUsage if an argument is out of range
   */
  public Step step(long position, int nRanks, int batch) {
    if (position < 0 || nRanks < 1 || batch < 1) {
      throw InvalidUsage.of(
          "step(position=%s, nRanks=%s, batch=%s); give 0 or more, and 1 or more",
          position, nRanks, batch);
    }
    int from = (int) (position % size);
    int count = (int) Math.min(size - from, (long) nRanks * batch);
    long number = position / size;
    int[] examples = Arrays.copyOfRange(order(number), from, from + count);
    return new Step(examples, nRanks, number, position + count);
  }

  /** Returns the order of an epoch: a Fisher-Yates shuffle by a generator that Java specifies. */
  private synchronized int[] order(long number) {
    if (number != epoch) {
      Random random = new Random(seed * 0x9e3779b97f4a7c15L + number);
      int[] shuffled = new int[size];
      for (int i = 0; i < size; i++) {
        int other = random.nextInt(i + 1);
        shuffled[i] = shuffled[other];
        shuffled[other] = i;
      }
      order = shuffled;
      epoch = number;
    }
    return order;
  }
}
