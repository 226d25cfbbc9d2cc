package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;

/** The ways of doing collectives over pipes, and what they cost. */
enum Method {
  /** Each rank with each. */
  ALL_PAIRS("all-pairs") {
    @Override
    boolean supports(BoundCall call) {
      return true;
    }

    @Override
    double estimate(BoundCall call) {
      LinkCosts costs = LinkCosts.of(call.topology());
      return costs.allPairs(call.totalBytes(), Exchange.isTwice(call) ? 2 : 1);
    }
  },

  /** Each rank with its neighbours, in rank order. */
  RING("ring") {
    @Override
    boolean supports(BoundCall call) {
      return isAllReduce(call) && supports(call.call().type());
    }

    @Override
    double estimate(BoundCall call) {
      return LinkCosts.of(call.topology()).ring(call.totalBytes());
    }
  },

  /** Inside hosts, and between ranks that have the same place on their hosts. */
  HIERARCHICAL("hierarchical") {
    @Override
    boolean supports(BoundCall call) {
      return isAllReduce(call)
          && supports(call.call().type())
          && Hierarchy.isPossible(call.topology());
    }

    @Override
    double estimate(BoundCall call) {
      return LinkCosts.of(call.topology()).hierarchical(call.totalBytes());
    }
  };

  private final String label;

  Method(String label) {
    this.label = label;
  }

  String label() {
    return label;
  }

  /** Whether it takes elements of that type: 8-bit floats lose too much by rounding on the way. */
  boolean supports(DataType type) {
    return this == ALL_PAIRS || type != DataType.FLOAT8_E4M3 && type != DataType.FLOAT8_E5M2;
  }

  private static boolean isAllReduce(BoundCall call) {
    return call.call().collective() == Collective.ALL_REDUCE;
  }

  abstract boolean supports(BoundCall call);

  /** Microseconds. */
  abstract double estimate(BoundCall call);
}
