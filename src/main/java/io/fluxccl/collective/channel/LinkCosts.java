// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;

/**
 * A simple model of the cost of moving bytes, in microseconds: rates of a host's network and
 * memory, and the latency of a hop. The network's rate is the same in each direction, for any pairs
 * of ranks. The formulas, the origin of the figures, and what follows for many hosts, are in
 * docs/reference/scaling.md.
 *
 * @param nRanks number of ranks
 * @param hosts number of hosts
 * @param most the most ranks of a host
 * @param gpus whether the ranks are on GPUs
 */
record LinkCosts(int nRanks, int hosts, int most, boolean gpus) {
  private static final double NETWORK_HOP = 40;
  private static final double NETWORK_RATE = 2000;
  private static final double HOST_HOP = 2;
  private static final double HOST_RATE = 4000;
  private static final double GPU_HOP = 4;
  private static final double GPU_RATE = 100_000;

  /** Cost of a message for its sender, besides the bytes. */
  private static final double MESSAGE = 20;

  /** Share by which each further peer that sends at once slows the network. */
  private static final double CROWDING = 0.01;

  /** The most bytes of a piece of a chain over hosts. */
  private static final double PIECE = 128 << 10;

  private double localHop() {
    return gpus ? GPU_HOP : HOST_HOP;
  }

  private double localRate() {
    return gpus ? GPU_RATE : HOST_RATE;
  }

  static LinkCosts of(RankTopology topology) {
    boolean gpus = topology.kind() == DeviceKind.CUDA;
    if (!topology.mapped()) {
      return new LinkCosts(topology.nRanks(), topology.nRanks(), 1, gpus);
    }
    return new LinkCosts(topology.nRanks(), topology.hosts(), topology.mostRanksPerHost(), gpus);
  }

  /**
   * Returns the time if each rank exchanges data with each other rank.
   *
   * @param bytes the larger of a rank's input and output
   * @param twice whether there are two exchanges
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
        + bytes / localRate();
  }

  /** Returns the time of an all-reduce around a ring. */
  double ring(double bytes) {
    int hops = 2 * (nRanks - 1);
    double hop =
        (hosts * (NETWORK_HOP + MESSAGE) + (nRanks - hosts) * localHop()) / (double) nRanks;
    return hops * hop + network(hops * bytes / nRanks, 1) + bytes / localRate() * most;
  }

  /** Returns the time inside hosts and along the rails between them. */
  double hierarchical(Collective collective, double bytes) {
    int others = hosts - 1;
    double shared = bytes * others / hosts;
    double local = 2 * localHop() + 2 * bytes / localRate();
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

  /** Returns the time of an all-reduce that the network between the hosts does. */
  double collNet(double bytes) {
    return NETWORK_HOP + network(bytes, 1) + 2 * localHop() + 2 * bytes / localRate();
  }

  private static double network(double bytesOfHost, double peers) {
    return bytesOfHost / NETWORK_RATE * (1 + CROWDING * peers);
  }
}
