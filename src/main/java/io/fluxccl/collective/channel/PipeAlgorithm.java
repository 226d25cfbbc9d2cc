// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.ReductionOrder;
import java.util.Locale;

/** The methods of collectives over pipes, and their costs. */
enum PipeAlgorithm {
  /** Each rank exchanges data with each other rank. */
  ALL_PAIRS,
  /** Each rank exchanges data with its neighbours, in rank order. */
  RING,
  /**
   * Ranks exchange data on each host, and with the ranks that have the same place on their hosts.
   */
  HIERARCHICAL,
  /**
   * Ranks exchange data on each host, and a network combines what the ranks with the same place on
   * their hosts have.
   */
  COLLNET;

  private final String label = name().toLowerCase(Locale.ROOT).replace('_', '-');

  /** Returns the algorithm's name, for example {@code all-pairs}. */
  String label() {
    return label;
  }

  /**
   * Returns whether the method reduces elements of a type: 8-bit floats lose too much if each rank
   * rounds.
   */
  boolean reduces(DataType type) {
    return this == ALL_PAIRS || type != DataType.FLOAT8_E4M3 && type != DataType.FLOAT8_E5M2;
  }

  /** Returns whether the method does a call, on a topology that has the method. */
  boolean supports(BoundCall call) {
    Collective collective = call.call().collective();
    return supports(collective)
        && (!collective.reduces() || reduces(call.call().type()))
        && (this != HIERARCHICAL && this != COLLNET || !call.call().isPartOfShares());
  }

  boolean supports(Collective collective) {
    return switch (this) {
      case ALL_PAIRS -> collective != Collective.FUSED_ALL_REDUCE;
      case RING, COLLNET -> collective == Collective.ALL_REDUCE;
      case HIERARCHICAL ->
          switch (collective) {
            case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, REDUCE -> true;
            default -> false;
          };
    };
  }

  /** Returns the order in which it combines values. */
  ReductionOrder order(BoundCall call) {
    if (this == ALL_PAIRS) {
      return ReductionOrder.OF_RANKS;
    }
    // It adds by local ranks, then by hosts, whichever rank does it. A ring begins with another
    // rank in each part.
    boolean isFixed = this == HIERARCHICAL && call.call().collective() == Collective.ALL_REDUCE;
    return isFixed ? ReductionOrder.FIXED : ReductionOrder.VARYING;
  }

  /** Returns the estimated time in microseconds. */
  double estimate(BoundCall call) {
    LinkCosts costs = LinkCosts.of(call.topology());
    Collective collective = call.call().collective();
    return switch (this) {
      case ALL_PAIRS -> costs.allPairs(collective, call.totalBytes(), Exchange.isTwice(call));
      case RING -> costs.ring(call.totalBytes());
      case HIERARCHICAL -> costs.hierarchical(collective, call.totalBytes());
      case COLLNET -> costs.collNet(call.totalBytes());
    };
  }
}
