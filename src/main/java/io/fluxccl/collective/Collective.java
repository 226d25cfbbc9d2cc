// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/** The operations in which several ranks take part. */
public enum Collective {
  /** Every rank gets the combination of all inputs. */
  ALL_REDUCE,
  /** Every rank gets all inputs, concatenated in rank order. */
  ALL_GATHER,
  /** Each rank gets its share of the combination of all inputs. */
  REDUCE_SCATTER,
  /** Every rank gets the root's input. */
  BROADCAST,
  /** The root gets the combination of all inputs. */
  REDUCE,
  /** Share j of rank i's input becomes share i of rank j's output. */
  ALL_TO_ALL,
  /** An all-to-all with shares of any sizes. */
  ALL_TO_ALL_V,
  /** The root gets all inputs, concatenated in rank order. */
  GATHER,
  /** Each rank gets its share of the root's input. */
  SCATTER,
  /** Every rank gets what an {@link Epilogue} makes of each row of the sum of all inputs. */
  FUSED_ALL_REDUCE,
  /** One rank sends, another receives; a rank may do both at once, with different peers. */
  SEND_RECEIVE,
  /** Each token goes to the ranks that have its experts; {@link Dispatch}. */
  DISPATCH,
  /** Each token gets the sum of its experts' results; {@link Combine}. */
  COMBINE,
  /** No rank completes it before every rank has begun it. */
  BARRIER;

  private final String label = name().toLowerCase(Locale.ROOT).replace('_', '-');

  /** Returns those of any number of elements, not of rows or tokens. */
  public static List<Collective> plain() {
    return Arrays.stream(values())
        .filter(each -> each != FUSED_ALL_REDUCE && !each.isOfExperts())
        .toList();
  }

  /** Returns the name in messages and on the command line, for example {@code all-reduce}. */
  public String label() {
    return label;
  }

  /**
   * Returns whether values are combined, by a {@link io.fluxccl.ReduceOp}, and are the output.
   * False for {@link #FUSED_ALL_REDUCE}, which has other algorithms.
   */
  public boolean reduces() {
    return this == ALL_REDUCE || this == REDUCE_SCATTER || this == REDUCE;
  }

  /** Returns whether one rank is the root. */
  public boolean hasRoot() {
    return this == BROADCAST || this == REDUCE || this == GATHER || this == SCATTER;
  }

  /** Returns whether every rank gives the same count, so that ranks know each other's sizes. */
  public boolean isUniform() {
    return this != ALL_TO_ALL_V && this != SEND_RECEIVE && this != BARRIER && !isOfExperts();
  }

  /** Returns whether it moves the tokens of a mixture of experts, by a routing on the device. */
  public boolean isOfExperts() {
    return this == DISPATCH || this == COMBINE;
  }

  /**
   * Returns what the bytes of a call, divided by its time, are multiplied with to get the bandwidth
   * that a bus would need, as nccl-tests defines it.
   *
   * @param nRanks how many ranks take part
   */
  public double busFactor(int nRanks) {
    return switch (this) {
      case ALL_REDUCE, FUSED_ALL_REDUCE -> 2.0 * (nRanks - 1) / nRanks;
      case ALL_GATHER,
          REDUCE_SCATTER,
          ALL_TO_ALL,
          ALL_TO_ALL_V,
          GATHER,
          SCATTER,
          DISPATCH,
          COMBINE ->
          (nRanks - 1.0) / nRanks;
      case BROADCAST, REDUCE, SEND_RECEIVE -> nRanks == 1 ? 0 : 1;
      case BARRIER -> 0;
    };
  }

  /** Returns whether only the root uses the input buffer. */
  boolean hasInputOnRootOnly() {
    return this == BROADCAST || this == SCATTER;
  }

  /** Returns whether only the root uses the output buffer. */
  boolean hasOutputOnRootOnly() {
    return this == REDUCE || this == GATHER;
  }

  /** Returns whether the input has a share of {@code count} elements for each rank. */
  boolean hasInputShares() {
    return this == REDUCE_SCATTER || this == ALL_TO_ALL || this == SCATTER;
  }

  /** Returns whether the output has a share of {@code count} elements for each rank. */
  boolean hasOutputShares() {
    return this == ALL_GATHER || this == ALL_TO_ALL || this == GATHER;
  }

  /**
   * Returns whether the choice of the algorithm may depend on registered buffers. That needs the
   * same buffers on every rank, all of them registered or none. A rank that has nothing to send or
   * to get has no such buffer. Nor has a gather's or scatter's rank: the root's share may lie in
   * its large buffer, which the other ranks have not registered.
   */
  public boolean isChosenByRegistration() {
    return isUniform() && this != GATHER && this != SCATTER;
  }

  /**
   * Returns whether every rank takes part. In {@link #SEND_RECEIVE} only the sender and the
   * receiver do, so it must not disturb what other ranks do in the meantime.
   */
  public boolean isByAll() {
    return this != SEND_RECEIVE;
  }

  /** Returns a size in bytes, which must have room in a long: both factors are 0 or more. */
  long multiply(long size, long n) {
    if (Math.multiplyHigh(size, n) != 0 || size * n < 0) {
      throw tooLarge(size);
    }
    return size * n;
  }

  InvalidUsage tooLarge(long size) {
    return InvalidUsage.of("%s of %d: more bytes than there can be; give less", label, size);
  }
}
