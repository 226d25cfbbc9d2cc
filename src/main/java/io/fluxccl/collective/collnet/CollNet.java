// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.collnet;

import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.channel.RailNetwork;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** The network of NCCL's plug-in, if that reduces data itself. */
public final class CollNet implements RailNetwork {
  /** Creates the network. Called by {@link java.util.ServiceLoader}. */
  public CollNet() {}

  @Override
  public CompletableFuture<Optional<Groups>> open(
      PeerConnections peers, int[] rail, int railIndex, int lanes, int slotBytes) {
    return CollNetGroups.open(peers, new CollNetGroups.Shape(rail, railIndex, lanes, slotBytes));
  }
}
