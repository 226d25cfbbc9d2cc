// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;

/**
 * The base of the algorithms of {@link ExchangeSet}, and what their estimates share: times in
 * microseconds, rates in bytes per microsecond, fitted to 8 x H200.
 */
abstract class ExchangeAlgorithm implements CollectiveAlgorithm {
  /** Time of a launch that sends and receives packets of 120 bytes. */
  static final double LL128_LATENCY = 1.95;

  /** Time of a launch with two barriers of all ranks. */
  static final double PUSH_LATENCY = 3.9;

  /** Rate of a link for stores to one peer after the other. */
  static final double PUSH_RATE = 331_000;

  final ExchangeSet set;
  private final String name;

  ExchangeAlgorithm(ExchangeSet set, String name) {
    this.set = set;
    this.name = name;
  }

  @Override
  public final String name() {
    return name;
  }

  /** Returns the bytes that the busiest rank sends or receives; 0 if ranks can't know. */
  static long busiestLink(BoundCall call) {
    long peers = call.nRanks() - 1L;
    return switch (call.call().collective()) {
      case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> 0;
      default -> peers * call.call().countBytes();
    };
  }
}
