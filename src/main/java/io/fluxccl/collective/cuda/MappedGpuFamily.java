// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Every collective of GPUs of one host that map each other's memory. */
public final class MappedGpuFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "cuda";
  }

  @Override
  public List<String> description() {
    return List.of(
        "exchange-ll8: packets of 4 bytes, up to 16 KiB a pair of ranks",
        "exchange-ll128: packets of 120 bytes, any size, any collective that only moves bytes",
        "exchange-push: stores into registered outputs; all-gather, all-to-all, broadcast",
        "exchange-spread: broadcast in two steps, a part to each rank, then each rank's part to"
            + " all",
        "exchange-copy: copy engines into registered outputs; all-gather, all-to-all, the largest",
        "quantized-f8e4m3: only when asked for; sums of FLOAT16, BFLOAT16 and FLOAT32 that travel"
            + " as FLOAT8_E4M3 with a scale for each 112 elements",
        "quantized-int8: only when asked for; the same as INT8",
        "one-shot-ll8: up to 32 KiB / peers; each input to all ranks in packets of 8 bytes",
        "one-shot-ll128, -sentinel: up to 256 KiB / peers, 128 KiB to three, 1 MiB to one; the same"
            + " in lines of 128 bytes",
        "two-shots-ll8, -ll128, -sentinel: up to some MiB; each rank reduces a part, in packets",
        "two-shots-bulk: some ten MiB on registered memory; packets, then bulk copies to outputs",
        "staggered-direct: large, on registered memory; plain stores, to another peer in each step",
        "staggered-staged: any call; the same in slices through the library's own memory",
        "copy-engines-reduce: the largest, on registered memory; copy engines and a kernel beside",
        "fused-one-shot, fused-two-shots: all-reduce with an epilogue, of up to some hundred rows;"
            + " in packets",
        "routed-all-to-all: all-to-all-v with counts on the device, in packets of 120 bytes",
        "experts-dispatch: each token to the ranks with its experts, in packets of 120 bytes",
        "experts-combine: the sum of what they give, in rank order");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return topology.kind() == DeviceKind.CUDA
        && topology.nRanks() > 1
        && topology.nRanks() <= MappedPeers.MAX_RANKS
        && topology.allMapped();
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return MappedGpuSet.prepare(peers);
  }
}
