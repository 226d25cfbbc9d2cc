package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaStream;

/**
 * Copy engines write into the peers' registered outputs, for the largest all-gathers and
 * all-to-alls: they use a link better than stores do, but each copy costs some microseconds. One
 * copy after the other, because engines that write to several peers at once get half the rate; each
 * rank begins with another peer. The own part is copied beside them by a few blocks. Engines don't
 * see an abort: copies that are enqueued are made, into memory that stays mapped until then.
 *
 * <pre>
 *   meet   copy to rank + 1   copy to rank + 2   ...   meet
 *   branch: own part
 * </pre>
 */
final class CopyExchange implements CollectiveAlgorithm {
  private final ExchangeSet set;

  CopyExchange(ExchangeSet set) {
    this.set = set;
  }

  @Override
  public String name() {
    return "exchange-copy";
  }

  @Override
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    return call.isOutputRegistered()
        && (what == Collective.ALL_GATHER || what == Collective.ALL_TO_ALL && !call.isInPlace());
  }

  @Override
  public double estimate(BoundCall call) {
    return ExchangeCosts.COPY_LATENCY
        + ExchangeCosts.COPY_NODE * (call.nRanks() - 1)
        + ExchangeCosts.busiestLink(call) / ExchangeCosts.COPY_RATE;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    set.parts().clear(null).own(call);
    DeviceStream beside = stream.branch("exchange-own");
    beside.waitFor(stream);
    set.launchOwn(beside);
    set.launchMeeting(stream, call);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      ((CudaStream) stream)
          .copyAsync(
              call.outputOn(peer) + what.receiveOffset(rank),
              what.input().address() + what.sendOffset(peer),
              what.sendBytes(rank, peer));
    }
    stream.waitFor(beside);
    set.launchMeeting(stream, call);
  }
}
