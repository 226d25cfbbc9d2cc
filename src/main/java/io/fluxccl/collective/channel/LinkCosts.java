package io.fluxccl.collective.channel;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;

/**
 * A simple model of what moving bytes costs: a host's network carries so many bytes a microsecond
 * in each direction whatever pair they are of, its memory so many, and each hop takes a while. The
 * formulas, where the figures come from, and what follows for many hosts, are in
 * docs/reference/scaling.md.
 */
final class LinkCosts {
  private static final double NETWORK_HOP = 40;
  private static final double NETWORK_RATE = 2000;
  private static final double HOST_HOP = 2;
  private static final double HOST_RATE = 4000;
  private static final double GPU_HOP = 4;
  private static final double GPU_RATE = 100_000;

  /** What a message costs the rank that sends it, beside its bytes. */
  private static final double MESSAGE = 20;

  /** Each further peer that sends at once costs a little more than its bytes. */
  private static final double CROWDING = 0.01;

  /** The most bytes of a piece of a chain over hosts. */
  private static final double PIECE = 128 << 10;

  private final int nRanks;
  private final int hosts;
  private final int most;
  private final double localHop;
  private final double localRate;

  LinkCosts(int nRanks, int hosts, int most, boolean gpus) {
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

  /**
   * Each rank with each.
   *
   * @param bytes the larger of a rank's input and output
   * @param twice whether parts go out first, and come back to all
   */
  double allPairs(Collective collective, double bytes, boolean twice) {
    double others = nRanks - most;
    double part = bytes / nRanks;
    double each =
        switch (collective) {
          case ALL_REDUCE -> twice ? 2 * most * part : most * bytes;
          case BROADCAST, REDUCE -> twice ? (1 + most) * part : bytes;
          case GATHER, SCATTER -> part;
          default -> most * part;
        };
    int exchanges = twice ? 2 : 1;
    return exchanges * (NETWORK_HOP + others * MESSAGE)
        + network(each * others, others)
        + bytes / localRate;
  }

  /** All-reduce, each rank with its neighbours. */
  double ring(double bytes) {
    int hops = 2 * (nRanks - 1);
    double hop = (hosts * (NETWORK_HOP + MESSAGE) + (nRanks - hosts) * localHop) / (double) nRanks;
    return hops * hop + network(hops * bytes / nRanks, 1) + bytes / localRate * most;
  }

  /** Inside hosts, and along rails between them. */
  double hierarchical(Collective collective, double bytes) {
    int others = hosts - 1;
    double shared = bytes * others / hosts;
    double local = 2 * localHop + 2 * bytes / localRate;
    return switch (collective) {
      case ALL_REDUCE -> {
        boolean split = Hierarchy.isSplit(hosts, (long) bytes);
        yield (split ? 2 : 1) * (NETWORK_HOP + others * MESSAGE)
            + network(split ? 2 * shared : others * bytes, others)
            + local;
      }
      case BROADCAST, REDUCE ->
          others * (NETWORK_HOP + MESSAGE)
              + (others - 1) * Math.min(PIECE, bytes / most) * most / NETWORK_RATE
              + network(bytes, 1)
              + local;
      case ALL_TO_ALL -> NETWORK_HOP + others * MESSAGE + network(most * shared, others) + local;
      default -> NETWORK_HOP + others * MESSAGE + network(shared, others) + local;
    };
  }

  private static double network(double bytesOfHost, double peers) {
    return bytesOfHost / NETWORK_RATE * (1 + CROWDING * peers);
  }
}
