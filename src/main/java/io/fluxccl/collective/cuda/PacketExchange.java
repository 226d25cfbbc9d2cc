// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.device.DeviceStream;

/**
 * Every collective that only moves bytes, by packets through rings; see {@code
 * exchange_packets.cuh}. Ranks that have nothing to exchange don't wait for each other.
 */
final class PacketExchange extends ExchangeAlgorithm {
  /** Rate of the link of two ranks for packets of {@code exchange_short.cuh}. */
  private static final double SHORT_RATE = 285_000;

  private final ExchangeRing ring;
  private final long limit;
  private final double latency;
  private final double bytesPerMicrosecond;

  private PacketExchange(
      ExchangeSet set,
      ExchangeRing ring,
      String name,
      long limit,
      double latency,
      double bytesPerMicrosecond) {
    super(set, name);
    this.ring = ring;
    this.limit = limit;
    this.latency = latency;
    this.bytesPerMicrosecond = bytesPerMicrosecond;
  }

  static PacketExchange ll8(ExchangeSet set) {
    return new PacketExchange(set, set.ll8, "exchange-ll8", set.ll8.eagerBytes(), 1.8, 100_000);
  }

  static PacketExchange ll128(ExchangeSet set) {
    return new PacketExchange(
        set, set.ll128, "exchange-ll128", Long.MAX_VALUE, LL128_LATENCY, 265_000);
  }

  @Override
  public boolean needsNvlink() {
    return ring == set.ll128;
  }

  @Override
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    if (what.reduces() || what == Collective.FUSED_ALL_REDUCE) {
      return false;
    }
    // Only one algorithm may support a call with sizes that peers don't know.
    boolean unknown = !what.isUniform() && what != Collective.BARRIER;
    return limit == Long.MAX_VALUE || !unknown && call.call().countBytes() <= limit;
  }

  @Override
  public double estimate(BoundCall call) {
    long bytes = busiestLink(call);
    return call.nRanks() == 2 && ring.isShort(bytes) && ring == set.ll128
        ? LL128_LATENCY + bytes / SHORT_RATE
        : latency + bytes / bytesPerMicrosecond;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    if (call.call().collective() == Collective.SEND_RECEIVE) {
      set.launchSendReceive(stream, call);
      return;
    }
    set.parts.of(call, ring, set.stateAddress());
    set.launchPackets(stream, call, ring);
  }
}
