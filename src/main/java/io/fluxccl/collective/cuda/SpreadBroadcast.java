// SPDX-License-Identifier: Apache-2.0
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
  /** Slices begin at multiples of this number of bytes. */
  private static final int ALIGNMENT = 128;

  private static final double PACKET_RATE = 265_000;

  SpreadBroadcast(ExchangeSet set) {
    super(set, "exchange-spread");
  }

  @Override
  public boolean needsNvlink() {
    return true;
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
    boolean stores = call.isOutputRegistered() && byStores(call) < byPackets(call);
    scatter(call, stores);
    launch(stream, call, stores);
    gather(call, stores);
    launch(stream, call, stores);
  }

  private void launch(DeviceStream stream, BoundCall call, boolean stores) {
    if (stores) {
      set.launchPush(stream, call, slice(call), false);
    } else {
      set.launchPackets(stream, call, set.ll128);
    }
  }

  private static long begin(BoundCall call, int rank) {
    return Math.min(call.call().countBytes(), slice(call) * rank);
  }

  private static long length(BoundCall call, int rank) {
    return begin(call, rank + 1) - begin(call, rank);
  }

  /** Fills in a slice for each rank, from the root; of stores, the writer knows the address. */
  private void scatter(BoundCall call, boolean stores) {
    CollectiveCall what = call.call();
    ExchangeParts parts = set.parts.clear(stores ? null : set.ll128);
    int rank = call.rank();
    if (rank != what.root()) {
      if (!stores) {
        long to = what.output().address() + begin(call, rank);
        parts.add(what.root(), 0, 0, to, length(call, rank));
      }
      return;
    }
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      long from = what.input().address() + begin(call, peer);
      long to = stores ? call.outputOn(peer) + begin(call, peer) : 0;
      parts.add(peer, from, length(call, peer), to, 0);
    }
    parts.own(what.input().address(), what.output().address(), what.countBytes());
  }

  /** Fills in this rank's slice for each rank but the root, which has all slices already. */
  private void gather(BoundCall call, boolean stores) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    long output = what.output().address();
    ExchangeParts parts = set.parts.clear(stores ? null : set.ll128);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      long to = stores ? call.outputOn(peer) + begin(call, rank) : output + begin(call, peer);
      parts.add(
          peer,
          output + begin(call, rank),
          peer == what.root() ? 0 : length(call, rank),
          to,
          stores || rank == what.root() ? 0 : length(call, peer));
    }
  }
}
