package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceStream;

/**
 * A broadcast in two steps: the root sends every rank a slice, and every rank sends its slice to
 * the others. So the root's link carries the data once, not once for each rank. Both steps use
 * packets, or stores if outputs are registered and the slices large.
 */
final class SpreadBroadcast extends ExchangeAlgorithm {
  /** Slices begin at multiples of so many bytes. */
  private static final int ALIGNMENT = 128;

  private static final double PACKET_RATE = 265_000;

  SpreadBroadcast(ExchangeSet set) {
    super(set, "exchange-spread");
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call().collective() == Collective.BROADCAST && call.nRanks() > 2;
  }

  private static long slice(BoundCall call) {
    long each = (call.call().countBytes() + call.nRanks() - 1) / call.nRanks();
    return (each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  @Override
  public double estimate(BoundCall call) {
    return Math.min(
        byPackets(call), call.isOutputRegistered() ? byStores(call) : Double.POSITIVE_INFINITY);
  }

  private static double byPackets(BoundCall call) {
    return 2 * (LL128_LATENCY + slice(call) * (call.nRanks() - 1) / PACKET_RATE);
  }

  private static double byStores(BoundCall call) {
    return 2 * (PUSH_LATENCY + slice(call) * (call.nRanks() - 1) / PUSH_RATE);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    if (call.isOutputRegistered() && byStores(call) < byPackets(call)) {
      fillByStores(call, call.rank() == call.call().root());
      set.launchPush(stream, call, slice(call), false);
      fillByStores(call, false);
      spreadByStores(call);
      set.launchPush(stream, call, slice(call), false);
    } else {
      scatterByPackets(call);
      set.launchPackets(stream, call, set.ll128());
      gatherByPackets(call);
      set.launchPackets(stream, call, set.ll128());
    }
  }

  private static long begin(BoundCall call, int rank) {
    return Math.min(call.call().countBytes(), slice(call) * rank);
  }

  private static long length(BoundCall call, int rank) {
    return begin(call, rank + 1) - begin(call, rank);
  }

  private void fillByStores(BoundCall call, boolean isSource) {
    CollectiveCall what = call.call();
    ExchangeParts parts = set.parts().clear(null);
    if (!isSource) {
      return;
    }
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (call.rank() + ahead) % call.nRanks();
      parts.add(
          peer,
          what.input().address() + begin(call, peer),
          length(call, peer),
          call.outputOn(peer) + begin(call, peer),
          0);
    }
    parts.own(what.input().address(), what.output().address(), what.countBytes());
  }

  private void spreadByStores(BoundCall call) {
    CollectiveCall what = call.call();
    long begin = begin(call, call.rank());
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (call.rank() + ahead) % call.nRanks();
      // The root has all slices already.
      if (peer != what.root()) {
        set.parts()
            .add(
                peer,
                what.output().address() + begin,
                length(call, call.rank()),
                call.outputOn(peer) + begin,
                0);
      }
    }
  }

  private void scatterByPackets(BoundCall call) {
    CollectiveCall what = call.call();
    ExchangeParts parts = set.parts().clear(set.ll128());
    if (call.rank() != what.root()) {
      long begin = begin(call, call.rank());
      parts.add(what.root(), 0, 0, what.output().address() + begin, length(call, call.rank()));
      return;
    }
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (call.rank() + ahead) % call.nRanks();
      parts.add(peer, what.input().address() + begin(call, peer), length(call, peer), 0, 0);
    }
    parts.own(what.input().address(), what.output().address(), what.countBytes());
  }

  private void gatherByPackets(BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    ExchangeParts parts = set.parts().clear(set.ll128());
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      parts.add(
          peer,
          what.output().address() + begin(call, rank),
          peer == what.root() ? 0 : length(call, rank),
          what.output().address() + begin(call, peer),
          rank == what.root() ? 0 : length(call, peer));
    }
  }
}
