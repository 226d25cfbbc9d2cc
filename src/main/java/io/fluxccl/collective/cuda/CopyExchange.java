// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaStream;

/**
 * Copy engines write into the peers' registered outputs, for the largest all-gathers and
 * all-to-alls. They use a link better than stores do, but each copy costs some microseconds. Copies
 * run one after the other, because engines that write to several peers at once get half the rate;
 * each rank begins with another peer. A few blocks copy the own part in parallel. Engines don't see
 * an abort: enqueued copies are made, into memory that stays mapped until then.
 *
 * <pre>
 *   barrier   copy to rank + 1   copy to rank + 2   ...   barrier
 *   branch: own part
 * </pre>
 */
final class CopyExchange extends ExchangeAlgorithm {
  /** Time of two barriers in launches of their own. */
  private static final double LATENCY = 12;

  /** Time of a copy of any length. */
  private static final double COPY_LATENCY = 9;

  /** Rate of a link for a copy engine. */
  private static final double RATE = 396_600;

  CopyExchange(ExchangeSet set) {
    super(set, "exchange-copy");
  }

  @Override
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    return call.isOutputRegistered()
        && (what == Collective.ALL_GATHER || what == Collective.ALL_TO_ALL && !call.isInPlace());
  }

  @Override
  public boolean usesCopyEngines() {
    return true;
  }

  @Override
  public double estimate(BoundCall call) {
    return LATENCY + COPY_LATENCY * (call.nRanks() - 1) + busiestLink(call) / RATE;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    set.parts.clear(null).own(call);
    DeviceStream beside = stream.branch("exchange-own");
    beside.waitFor(stream);
    set.launchOwn(beside);
    set.launchBarrier(stream, call);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      ((CudaStream) stream)
          .copyAsync(
              call.outputOn(peer) + what.receiveOffset(rank),
              what.input().address() + what.sendOffset(peer),
              what.sendBytes(rank, peer));
    }
    stream.waitFor(beside);
    set.launchBarrier(stream, call);
  }
}
