// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Calls whose kernels read sizes from the device, on GPUs that map each other's memory. */
public final class RoutedFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "cuda-routed";
  }

  @Override
  public List<String> description() {
    return List.of(
        "routed-all-to-all: all-to-all-v with counts on the device, in packets of 120 bytes",
        "experts-dispatch: each token to the ranks with its experts, in packets of 120 bytes",
        "experts-combine: the sum of what they give, in rank order");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return MappedPeers.areSupported(topology);
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return RoutedSet.prepare(peers);
  }
}
