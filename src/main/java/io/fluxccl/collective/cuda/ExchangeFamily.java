// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Collectives that only move bytes, on GPUs of one host that map each other's memory. */
public final class ExchangeFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "cuda-exchange";
  }

  @Override
  public List<String> description() {
    return List.of(
        "exchange-ll8: packets of 4 bytes, up to 16 KiB a pair of ranks",
        "exchange-ll128: packets of 120 bytes, any size, any collective that only moves bytes",
        "exchange-push: stores into registered outputs; all-gather, all-to-all, broadcast",
        "exchange-spread: broadcast in two steps, a part to each rank, then each rank's part to"
            + " all",
        "exchange-copy: copy engines into registered outputs; all-gather, all-to-all, the largest");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return MappedPeers.areSupported(topology);
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return ExchangeSet.prepare(peers);
  }
}
