package io.fluxccl.collective.channel;

import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;

/**
 * A simple model of what moving bytes costs: a host's network carries so many bytes a microsecond
 * in each direction whatever pair they are of, its memory so many, and each hop takes a while.
 */
final class LinkCosts {
  private static final double NETWORK_HOP = 40;
  private static final double NETWORK_RATE = 2000;
  private static final double HOST_HOP = 2;
  private static final double HOST_RATE = 4000;
  private static final double GPU_HOP = 4;
  private static final double GPU_RATE = 100_000;

  /** Each further peer that sends at once costs a little more than its bytes. */
  private static final double CROWDING = 0.01;

  private final int nRanks;
  private final int hosts;
  private final int most;
  private final double localHop;
  private final double localRate;

  private LinkCosts(int nRanks, int hosts, int most, boolean gpus) {
    this.nRanks = nRanks;
    this.hosts = hosts;
    this.most = most;
    this.localHop = gpus ? GPU_HOP : HOST_HOP;
    this.localRate = gpus ? GPU_RATE : HOST_RATE;
  }

  static LinkCosts of(RankTopology topology) {
    boolean gpus = topology.kind() == DeviceKind.CUDA;
    if (!topology.mapped()) {
      return new LinkCosts(topology.nRanks(), topology.nRanks(), 1, gpus);
    }
    int[] ranksOf = new int[topology.hosts()];
    int most = 0;
    for (int host : topology.hostOf()) {
      most = Math.max(most, ++ranksOf[host]);
    }
    return new LinkCosts(topology.nRanks(), ranksOf.length, most, gpus);
  }

  double allPairs(long bytes, int exchanges) {
    double others = nRanks - most;
    double perHost = exchanges * most * (double) bytes / nRanks * others;
    return exchanges * NETWORK_HOP
        + perHost / NETWORK_RATE * (1 + CROWDING * others)
        + bytes / localRate;
  }

  double ring(long bytes) {
    double perHost = 2.0 * bytes * (nRanks - 1) / nRanks;
    int hops = 2 * (nRanks - 1);
    double hop = (hosts * NETWORK_HOP + (nRanks - hosts) * localHop) / nRanks;
    return hops * hop + perHost / NETWORK_RATE + bytes / localRate * most;
  }

  double hierarchical(long bytes) {
    double perHost = 2.0 * bytes * (hosts - 1) / hosts;
    return (hosts > 2 ? 2 : 1) * NETWORK_HOP
        + 2 * localHop
        + perHost / NETWORK_RATE * (1 + CROWDING * (hosts - 1))
        + 2 * bytes / localRate;
  }
}
