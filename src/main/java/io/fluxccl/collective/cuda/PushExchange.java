package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceStream;
import java.util.EnumSet;
import java.util.Set;

/**
 * Stores into the peers' registered outputs; see {@code exchange_push.cuh}. Not for a gather, where
 * only the root has an output; nor for a scatter, whose root may have its output elsewhere than the
 * others; nor for an all-to-all in place, whose inputs would be overwritten before they are read.
 */
final class PushExchange implements CollectiveAlgorithm {
  private static final Set<Collective> SUPPORTED =
      EnumSet.of(Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST);

  private final ExchangeSet set;

  PushExchange(ExchangeSet set) {
    this.set = set;
  }

  @Override
  public String name() {
    return "exchange-push";
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
    long bytes = ExchangeCosts.busiestLink(call);
    return Math.min(
        ExchangeCosts.PUSH_LATENCY + bytes / ExchangeCosts.PUSH_RATE, inStepEstimate(call, bytes));
  }

  private static double inStepEstimate(BoundCall call, long bytes) {
    return ExchangeCosts.PUSH_LATENCY
        + ExchangeCosts.STEP_LATENCY * (call.nRanks() - 2)
        + bytes / ExchangeCosts.STEPS_RATE;
  }

  /** In step when that is faster, and every rank writes to every other. */
  private static boolean isInStep(BoundCall call) {
    long bytes = ExchangeCosts.busiestLink(call);
    return !call.call().collective().hasRoot()
        && inStepEstimate(call, bytes)
            < ExchangeCosts.PUSH_LATENCY + bytes / ExchangeCosts.PUSH_RATE;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    ExchangeParts parts = set.parts().clear(null);
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
