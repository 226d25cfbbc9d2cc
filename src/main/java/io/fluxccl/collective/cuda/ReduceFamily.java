// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** All-reduce, reduce-scatter and reduce of GPUs that map each other's memory. */
public final class ReduceFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "cuda-reduce";
  }

  @Override
  public List<String> description() {
    return List.of(
        "one-shot-ll8: up to 32 KiB / peers; each input to all ranks in packets of 8 bytes",
        "one-shot-ll128, -sentinel: up to 256 KiB / peers, 1 MiB to one; the same in lines of 128"
            + " bytes",
        "two-shots-ll8, -ll128, -sentinel: up to some MiB; each rank reduces a part, in packets",
        "two-shots-bulk: some ten MiB on registered memory; packets, then bulk copies to outputs",
        "staggered-direct: large, on registered memory; plain stores, to another peer in each step",
        "staggered-staged: any call; the same in slices through the library's own memory",
        "copy-engines-reduce: the largest, on registered memory; copy engines and a kernel beside",
        "fused-one-shot, fused-two-shots: all-reduce with an epilogue, of up to some hundred rows; in"
            + " packets, a block a row");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return MappedPeers.areSupported(topology);
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return ReduceSet.prepare(peers);
  }
}
