// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A family without algorithms that is its own set; tests override the methods that they need. */
public abstract class FakeFamily implements AlgorithmFamily, AlgorithmSet {
  private final String name;

  protected FakeFamily(String name) {
    this.name = name;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public List<String> description() {
    return List.of(name + ": in tests");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return true;
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return CompletableFuture.completedFuture(this);
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return List.of();
  }

  @Override
  public void close() {}
}
