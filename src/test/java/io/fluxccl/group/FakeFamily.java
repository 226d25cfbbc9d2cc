package io.fluxccl.group;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerMesh;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Algorithms that do nothing; a test says how they are made ready, and what closing them does. */
abstract class FakeFamily implements AlgorithmFamily, AlgorithmSet {
  @Override
  public String name() {
    return "fake";
  }

  @Override
  public List<String> description() {
    return List.of("fake: in tests");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return true;
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerMesh mesh) {
    return CompletableFuture.completedFuture(this);
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return List.of();
  }

  @Override
  public void close() {}
}
