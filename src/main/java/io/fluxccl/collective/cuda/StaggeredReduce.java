// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.device.DeviceStream;

/**
 * Plain stores, in each step to another peer: {@code reduce_staggered.cuh}. The direct algorithm
 * stores into registered outputs. The staged one goes through scratch, and does every call.
 */
final class StaggeredReduce extends ReduceAlgorithm {
  private static final int BYTES_PER_BLOCK = 16 << 10;

  private final Scratch.Handle staging;

  /**
   * Creates an algorithm.
   *
   * @param staging scratch for all data; null for the algorithm that needs registered buffers
   */
  StaggeredReduce(ReduceSet set, Scratch.Handle staging) {
    super(
        set,
        staging == null ? "staggered-direct" : "staggered-staged",
        set.kernels("staggered", PacketArea.Kind.LL128, 0),
        PacketArea.NONE);
    this.staging = staging;
  }

  @Override
  public boolean supports(BoundCall call) {
    return staging == null
        ? set.scratch(call) != null && canStoreResults(call)
        : call.call().collective().reduces();
  }

  @Override
  public double estimate(BoundCall call) {
    int peers = call.nRanks() - 1;
    if (staging != null) {
      return isScatterOfPair(call) ? 14 + 0.0035 * sent(call) : 6 + 3 * peers + 0.0035 * sent(call);
    }
    if (isScatterOfPair(call)) {
      return 15 + 0.00305 * sent(call);
    }
    return isScatter(call)
        ? 10 + 1.2 * peers + 0.00305 * sent(call)
        : 4 + 2.2 * peers + 0.0029 * sent(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    launch(
        stream,
        call,
        set.grid.blocksFor(Reduction.partBytes(call), BYTES_PER_BLOCK),
        staging == null ? set.scratch(call).forSlots : staging);
  }
}
