// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import java.util.Locale;
import java.util.function.BiConsumer;
import java.util.function.Predicate;

/** The methods of collectives over pipes, and their costs. */
enum PipeAlgorithm {
  /** Each rank exchanges data with each other rank. */
  ALL_PAIRS,
  /** Each rank exchanges data with its neighbours, in rank order. */
  RING,
  /** Each rank exchanges data with its neighbours in a binary tree, on the host device only. */
  TREE,
  /**
   * Ranks exchange data on each host, and with the ranks that have the same place on their hosts.
   */
  HIERARCHICAL,
  /**
   * Ranks exchange data on each host, and a network combines what the ranks with the same place on
   * their hosts have.
   */
  COLLNET;

  private final String label = name().toLowerCase(Locale.ROOT).replace('_', '-');

  /** Returns the algorithm's name, for example {@code all-pairs}. */
  String label() {
    return label;
  }

  /**
   * Returns whether the method reduces elements of a type: 8-bit floats lose too much if each rank
   * rounds.
   */
  boolean reduces(DataType type) {
    return this == ALL_PAIRS || type != DataType.FLOAT8_E4M3 && type != DataType.FLOAT8_E5M2;
  }

  /** Returns whether the method does a call, on a topology that has the method. */
  boolean supports(BoundCall call) {
    Collective collective = call.call().collective();
    return supports(collective)
        && (!collective.reduces() || reduces(call.call().type()))
        && (this == ALL_PAIRS || this == RING || !call.call().isPartOfShares());
  }

  boolean supports(Collective collective) {
    return switch (this) {
      case ALL_PAIRS -> collective != Collective.FUSED_ALL_REDUCE;
      case RING, COLLNET -> collective == Collective.ALL_REDUCE;
      case TREE ->
          switch (collective) {
            case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, BARRIER -> true;
            default -> false;
          };
      case HIERARCHICAL ->
          switch (collective) {
            case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, REDUCE -> true;
            default -> false;
          };
    };
  }

  /** Returns the order in which it combines values. */
  ReductionOrder order(BoundCall call) {
    if (this == ALL_PAIRS) {
      return ReductionOrder.OF_RANKS;
    }
    // They add by local ranks, then by hosts, or by subtrees, whichever rank does it. A ring begins
    // with another rank in each part.
    boolean isFixed = this == HIERARCHICAL || this == TREE;
    return isFixed && call.call().collective() == Collective.ALL_REDUCE
        ? ReductionOrder.FIXED
        : ReductionOrder.VARYING;
  }

  /** Returns the estimated time in microseconds over pipes of a layout. */
  double estimate(BoundCall call, PipeLayout layout) {
    LinkCosts costs = LinkCosts.of(call.topology(), layout);
    Collective collective = call.call().collective();
    return switch (this) {
      case ALL_PAIRS -> costs.allPairs(collective, call.totalBytes(), Exchange.isTwice(call));
      case RING -> costs.ring(call.totalBytes());
      case TREE -> costs.tree(collective, call.totalBytes());
      case HIERARCHICAL -> costs.hierarchical(collective, call.totalBytes());
      case COLLNET -> costs.collNet(call.totalBytes());
    };
  }

  /**
   * A {@link PipeAlgorithm} on one kind of device.
   *
   * @param method the operations and their costs
   * @param layout of the pipes
   * @param canLaunch whether the device's kernel can do a call that the method supports
   * @param launch launches the kernel
   */
  record ChannelAlgorithm(
      PipeAlgorithm method,
      PipeLayout layout,
      Predicate<BoundCall> canLaunch,
      BiConsumer<DeviceStream, BoundCall> launch)
      implements CollectiveAlgorithm {
    @Override
    public String name() {
      return method.label();
    }

    @Override
    public boolean supports(BoundCall call) {
      return method.supports(call) && canLaunch.test(call);
    }

    @Override
    public double estimate(BoundCall call) {
      return method.estimate(call, layout);
    }

    @Override
    public ReductionOrder order(BoundCall call) {
      return method.order(call);
    }

    @Override
    public void enqueue(DeviceStream stream, BoundCall call) {
      launch.accept(stream, call);
    }
  }

  /**
   * A simple model of the cost of moving bytes, in microseconds: rates of a host's network and
   * memory, and the latency of a hop. The network's rate is the same in each direction, for any
   * pairs of ranks. The formulas, the origin of the figures, and what follows for many hosts, are
   * in docs/reference/scaling.md.
   *
   * @param nRanks number of ranks
   * @param hosts number of hosts
   * @param most the most ranks of a host
   * @param gpus whether the ranks are on GPUs
   * @param slot bytes of a piece between any two ranks, over all lanes
   * @param nearSlot bytes of a piece between neighbours, over all lanes
   */
  record LinkCosts(int nRanks, int hosts, int most, boolean gpus, double slot, double nearSlot) {
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

    /** The most bytes of a piece of a chain over hosts, or of a tree. */
    private static final double PIECE = 128 << 10;

    /** Costs with slots for the largest pieces. */
    LinkCosts(int nRanks, int hosts, int most, boolean gpus) {
      this(nRanks, hosts, most, gpus, PIECE, PIECE);
    }

    private double localHop() {
      return gpus ? GPU_HOP : HOST_HOP;
    }

    private double localRate() {
      return gpus ? GPU_RATE : HOST_RATE;
    }

    static LinkCosts of(RankTopology topology, PipeLayout layout) {
      boolean gpus = topology.kind() == DeviceKind.CUDA;
      int nRanks = topology.nRanks();
      int hosts = topology.mapped() ? topology.hosts() : nRanks;
      int most = topology.mapped() ? topology.mostRanksPerHost() : 1;
      return gpus
          ? new LinkCosts(nRanks, hosts, most, true)
          : new LinkCosts(nRanks, hosts, most, layout);
    }

    /** Costs on the host device, where many ranks of a host have small slots. */
    LinkCosts(int nRanks, int hosts, int most, PipeLayout layout) {
      this(
          nRanks,
          hosts,
          most,
          false,
          Math.min(PIECE, (double) layout.lanes() * layout.slotBytes()),
          Math.min(PIECE, (double) layout.lanes() * layout.nearSlotBytes()));
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
      double messages = others * Math.max(1, Math.min(part, PIECE) / slot);
      return exchanges * (NETWORK_HOP + messages * MESSAGE)
          + network(each * others, others)
          + bytes / localRate();
    }

    /** Returns the time of an all-reduce around a ring. */
    double ring(double bytes) {
      int hops = 2 * (nRanks - 1);
      return hops * hop() + network(hops * bytes / nRanks, 1) + bytes / localRate() * most;
    }

    /** Returns the time along a binary tree, to the top and back. */
    double tree(Collective collective, double bytes) {
      double way = 2 * HostTree.depth(nRanks) * hop();
      double sent = collective == Collective.ALL_REDUCE ? 3 * bytes : 2 * bytes;
      // A rank sends at most SINGLE_DEPTH pieces before the top answers.
      double waits = bytes / (PipeLayout.SINGLE_DEPTH * nearSlot);
      double more = bytes / nearSlot - bytes / PIECE;
      return way * (1 + waits) + more * MESSAGE + network(sent, 2) + bytes / localRate() * most;
    }

    /** Returns the mean time of a message to the next rank. */
    private double hop() {
      return (hosts * (NETWORK_HOP + MESSAGE) + (nRanks - hosts) * localHop()) / (double) nRanks;
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
}
