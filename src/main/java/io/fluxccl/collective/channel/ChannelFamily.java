// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.OptionalLibrary;
import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.slf4j.LoggerFactory;

/**
 * The algorithms of ranks some of which can't map each other's memory, or whose GPUs have no NVLink
 * between them: their pipes need only releases and acquires.
 */
public final class ChannelFamily implements AlgorithmFamily {
  /** A GPU's block has a thread for each rank. */
  static final int MAX_RANKS = 512;

  /** As in {@code mapped_peers.cuh}. */
  private static final int MOST_MAPPED_GPUS = 16;

  @Override
  public String name() {
    return "channel";
  }

  @Override
  public List<String> description() {
    return List.of(
        "all-pairs: every collective, between hosts, or of GPUs without NVLink; each rank with each"
            + " other rank, in pieces",
        "ring: all-reduce between hosts, each rank with its neighbours",
        "tree: all-reduce, all-gather, reduce-scatter, broadcast, reduce, barrier between hosts, on"
            + " the host device; each rank with at most three others",
        "hierarchical: all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all"
            + " between hosts of equally many ranks; inside hosts first, then rail by rail",
        "collnet: all-reduce between hosts of equally many ranks, on the host device, where the"
            + " network plug-in reduces itself and NCCL_COLLNET_ENABLE=1");
  }

  @Override
  public String settings() {
    if (!RailNetwork.isAllowed()) {
      return "collective network=no";
    }
    return "collective network=allowed" + (RailNetwork.find().isPresent() ? "" : ", not installed");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return topology.nRanks() > 1
        && topology.nRanks() <= MAX_RANKS
        && (!topology.allMapped()
            || topology.kind() == DeviceKind.CUDA && !areCoveredByOthers(topology));
  }

  /** Returns whether the kernels that use mapped memory alone do all calls of these GPUs. */
  private static boolean areCoveredByOthers(RankTopology topology) {
    return topology.nRanks() <= MOST_MAPPED_GPUS && topology.hasNvlink();
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return ChannelSet.prepare(peers);
  }

  /** The algorithms that use a lane's pipes. */
  private static final class ChannelSet implements AlgorithmSet {
    /** More threads don't fill a socket faster. */
    private static final int MAX_HOST_LANES = 4;

    private static final int MAX_GPU_LANES = 8;

    /** A rank may have two collectives in flight, on two streams. */
    private static final int CONCURRENT = 2;

    private final Pipes pipes;
    private final RailNetwork.Groups groups;
    private final GpuAlgorithms onGpu;
    private final List<CollectiveAlgorithm> algorithms;

    private ChannelSet(Pipes pipes, RailNetwork.Groups groups) {
      this.pipes = pipes;
      this.groups = groups;
      boolean isGpu = pipes.peers.topology().kind() == DeviceKind.CUDA;
      this.onGpu = isGpu ? new GpuAlgorithms(pipes) : null;
      this.algorithms = isGpu ? onGpu.all() : HostAlgorithms.of(pipes, groups);
    }

    static CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
      PipeLayout layout =
          PipeLayout.of(
              peers.topology().kind(),
              peers.nRanks(),
              peers.topology().mostRanksPerHost(),
              lanes(peers));
      return Pipes.open(peers, layout).thenCompose(pipes -> prepare(pipes, peers, layout));
    }

    private static CompletableFuture<AlgorithmSet> prepare(
        Pipes pipes, PeerConnections peers, PipeLayout layout) {
      return openGroups(peers, layout)
          .whenComplete(PeerConnections.onFailure(pipes::close))
          .thenApply(groups -> of(pipes, groups.orElse(null)));
    }

    /** Opens the groups of a network that reduces data itself, if the user allows it. */
    private static CompletableFuture<Optional<RailNetwork.Groups>> openGroups(
        PeerConnections peers, PipeLayout layout) {
      RankTopology topology = peers.topology();
      boolean isUsable =
          RailNetwork.isAllowed()
              && topology.kind() == DeviceKind.HOST
              && Hierarchy.isRegular(topology);
      Optional<RailNetwork> network = isUsable ? RailNetwork.find() : Optional.empty();
      if (network.isEmpty()) {
        if (isUsable && peers.rank() == 0) {
          LoggerFactory.getLogger(RailNetwork.class)
              .warn(
                  "{}=1, but the collective network is not used: {}",
                  RailNetwork.VARIABLE,
                  OptionalLibrary.NCCL.missingReason().orElse("no jar on the class path has it"));
        }
        return CompletableFuture.completedFuture(Optional.empty());
      }
      Hierarchy hierarchy = Hierarchy.of(topology);
      return network
          .get()
          .open(peers, hierarchy.rail(), hierarchy.railIndex(), layout.lanes(), layout.slotBytes());
    }

    private static AlgorithmSet of(Pipes pipes, RailNetwork.Groups groups) {
      return Closing.onFailure(
          () -> Closing.all(groups, pipes), () -> new ChannelSet(pipes, groups));
    }

    private static int lanes(PeerConnections peers) {
      RankTopology topology = peers.topology();
      if (topology.kind() == DeviceKind.CUDA) {
        return Math.min(MAX_GPU_LANES, topology.mostBlocks(CONCURRENT));
      }
      return Math.max(1, Math.min(MAX_HOST_LANES, peers.threads()));
    }

    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return algorithms;
    }

    @Override
    public CompletableFuture<Void> drain() {
      return pipes.drain();
    }

    @Override
    public void close() {
      Closing.all(onGpu == null ? null : onGpu::close, groups, pipes::close);
    }
  }
}
