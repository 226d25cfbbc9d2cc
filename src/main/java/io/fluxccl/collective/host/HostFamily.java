// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of host-device ranks that map each other's memory. */
public final class HostFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "host";
  }

  @Override
  public List<String> description() {
    return List.of(
        "host-one-shot: small calls; each input to the ranks that need it, through shared memory",
        "host-direct: larger calls; in place on memory registered or used before, else as"
            + " host-staged",
        "host-staged: in pieces that stay in cache, reductions in two phases; only when asked for",
        "host-routed: calls whose sizes are read when they run: all-to-all-v with counts in memory,"
            + " dispatch, combine");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return topology.kind() == DeviceKind.HOST && topology.nRanks() > 1 && topology.allMapped();
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return HostSet.prepare(peers);
  }
}
