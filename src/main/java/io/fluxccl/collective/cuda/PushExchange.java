// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceStream;
import java.util.EnumSet;
import java.util.Set;

/**
 * Stores into the peers' registered outputs; see {@code exchange_push.cuh}. It does not support a
 * gather, where only the root has an output, nor a scatter, where the root may have its output at
 * another place. An all-to-all in place would overwrite inputs before they are read.
 */
final class PushExchange extends ExchangeAlgorithm {
  private static final Set<Collective> SUPPORTED =
      EnumSet.of(Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST);

  /** Rate of a link for stores in step, once the steps are long. */
  private static final double STEPS_RATE = 358_500;

  /** Time that each further peer costs in step. */
  private static final double STEP_LATENCY = 0.7;

  PushExchange(ExchangeSet set) {
    super(set, "exchange-push");
  }

  @Override
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    return SUPPORTED.contains(what)
        && call.isOutputRegistered()
        && !(what == Collective.ALL_TO_ALL && call.isInPlace());
  }

  @Override
  public double estimate(BoundCall call) {
    long bytes = busiestLink(call);
    return Math.min(PUSH_LATENCY + bytes / PUSH_RATE, inStepEstimate(call, bytes));
  }

  private static double inStepEstimate(BoundCall call, long bytes) {
    return PUSH_LATENCY + STEP_LATENCY * (call.nRanks() - 2) + bytes / STEPS_RATE;
  }

  /**
   * Returns whether ranks advance to the next peer together: if every rank writes to every other.
   */
  private static boolean isInStep(BoundCall call) {
    long bytes = busiestLink(call);
    return !call.call().collective().hasRoot()
        && inStepEstimate(call, bytes) < PUSH_LATENCY + bytes / PUSH_RATE;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    ExchangeParts parts = set.parts.clear(null);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      if (what.sendBytes(rank, peer) > 0) {
        parts.add(
            peer,
            what.input().address() + what.sendOffset(peer),
            what.sendBytes(rank, peer),
            call.outputOn(peer) + what.receiveOffset(rank),
            0);
      }
    }
    parts.own(call);
    set.launchPush(stream, call, what.countBytes(), isInStep(call));
  }
}
