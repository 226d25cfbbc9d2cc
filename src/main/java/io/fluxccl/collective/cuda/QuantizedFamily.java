// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** All-reduces with rounding errors of 8 bits, on GPUs that map each other's memory. */
public final class QuantizedFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "cuda-quantized";
  }

  @Override
  public List<String> description() {
    return List.of(
        "quantized-f8e4m3: only when asked for; sums of FLOAT16, BFLOAT16 and FLOAT32 that travel"
            + " as FLOAT8_E4M3 with a scale for each 112 elements",
        "quantized-int8: only when asked for; the same as INT8");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return MappedPeers.areSupported(topology);
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return QuantizedSet.prepare(peers);
  }
}
