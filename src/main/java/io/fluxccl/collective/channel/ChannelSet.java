// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.OptionalLibrary;
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

/** The algorithms that use a lane's pipes. */
final class ChannelSet implements AlgorithmSet {
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
    try {
      return new ChannelSet(pipes, groups);
    } catch (RuntimeException e) {
      Closing.all(groups, pipes);
      throw e;
    }
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
