package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;

/** The ways of doing collectives over pipes, and what they cost. */
enum Method {
  /** Each rank with each. */
  ALL_PAIRS("all-pairs") {
    @Override
    boolean supports(Collective collective) {
      return true;
    }

    @Override
    double estimate(BoundCall call) {
      return LinkCosts.of(call.topology())
          .allPairs(call.call().collective(), call.totalBytes(), Exchange.isTwice(call));
    }
  },

  /** Each rank with its neighbours, in rank order. */
  RING("ring") {
    @Override
    boolean supports(Collective collective) {
      return collective == Collective.ALL_REDUCE;
    }

    @Override
    double estimate(BoundCall call) {
      return LinkCosts.of(call.topology()).ring(call.totalBytes());
    }
  },

  /** Inside hosts, and between ranks that have the same place on their hosts. */
  HIERARCHICAL("hierarchical") {
    @Override
    boolean supports(Collective collective) {
      return switch (collective) {
        case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, REDUCE -> true;
        default -> false;
      };
    }

    @Override
    boolean takesPartsOfShares() {
      return false;
    }

    @Override
    double estimate(BoundCall call) {
      return LinkCosts.of(call.topology())
          .hierarchical(call.call().collective(), call.totalBytes());
    }
  };

  private final String label;

  Method(String label) {
    this.label = label;
  }

  String label() {
    return label;
  }

  /**
   * Whether it reduces elements of that type: 8-bit floats lose too much by rounding on the way.
   */
  boolean reduces(DataType type) {
    return this == ALL_PAIRS || type != DataType.FLOAT8_E4M3 && type != DataType.FLOAT8_E5M2;
  }

  /** Whether it does a call, among ranks where there is this method. */
  final boolean supports(BoundCall call) {
    Collective collective = call.call().collective();
    return supports(collective)
        && (!collective.reduces() || reduces(call.call().type()))
        && (!call.call().isPartOfShares() || takesPartsOfShares());
  }

  abstract boolean supports(Collective collective);

  /** Whether it does {@link CollectiveCall#isPartOfShares}. */
  boolean takesPartsOfShares() {
    return true;
  }

  /** Microseconds. */
  abstract double estimate(BoundCall call);
}
