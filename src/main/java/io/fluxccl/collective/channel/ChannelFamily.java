// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.concurrent.CompletableFuture;

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
}
