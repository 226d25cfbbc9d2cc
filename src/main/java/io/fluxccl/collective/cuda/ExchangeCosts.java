package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;

/** What the algorithms' estimates share. Times in microseconds, fitted to 8 x H200. */
final class ExchangeCosts {
  /** A launch that sends and receives packets of 120 bytes. */
  static final double LL128_LATENCY = 1.95;

  /** A launch in which all ranks meet twice. */
  static final double PUSH_LATENCY = 3.9;

  /** Bytes in a microsecond that stores to one peer after the other bring over a link. */
  static final double PUSH_RATE = 331_000;

  /** The same in step, once the steps are long. */
  static final double STEPS_RATE = 358_500;

  /** What going in step costs, for each peer. */
  static final double STEP_LATENCY = 0.7;

  /** Two meetings that are launches of their own. */
  static final double COPY_LATENCY = 12;

  /** What a copy costs, whatever its length. */
  static final double COPY_NODE = 9;

  /** Bytes in a microsecond that a copy engine brings over a link. */
  static final double COPY_RATE = 396_600;

  private ExchangeCosts() {}

  /** The bytes that the busiest rank sends or receives; 0 where ranks can't know. */
  static long busiestLink(BoundCall call) {
    long peers = call.nRanks() - 1L;
    return switch (call.call().collective()) {
      case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> 0;
      default -> peers * call.call().countBytes();
    };
  }
}
