package io.fluxccl.collective.channel;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerMesh;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of ranks of which some can't map each other's memory. */
public final class ChannelFamily implements AlgorithmFamily {
  /** A thread of a GPU's block looks after each rank. */
  static final int MAX_RANKS = 512;

  @Override
  public String name() {
    return "channel";
  }

  @Override
  public List<String> description() {
    return List.of(
        "all-pairs: every collective, between hosts; each rank with each, in pieces",
        "ring: all-reduce between hosts, each rank with its neighbours",
        "hierarchical: all-reduce between hosts of equally many ranks; inside first, then rail by"
            + " rail; on the host device also all-gather, reduce-scatter, broadcast, reduce,"
            + " all-to-all");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return topology.nRanks() > 1 && topology.nRanks() <= MAX_RANKS && !topology.allMapped();
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerMesh mesh) {
    return ChannelSet.prepare(mesh);
  }
}
