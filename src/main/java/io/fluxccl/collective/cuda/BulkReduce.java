// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.device.DeviceStream;

/**
 * Each rank sends sentinel packets to the owner of each part, which stores the reduced part by bulk
 * copies: {@code reduce_bulk.cuh}.
 */
final class BulkReduce extends ReduceAlgorithm {
  /** The compute capability that has bulk copies. */
  static final int LEAST_CAPABILITY = 90;

  /** Two pieces of {@code kPieceRows} rows. */
  private static final int SHARED_BYTES = 2 * 64 * 512;

  private static final int ROWS_PER_BLOCK = 16;

  BulkReduce(ReduceSet set) {
    super(
        set,
        "two-shots-bulk",
        set.kernels("bulk", PacketArea.Kind.SENTINEL, SHARED_BYTES),
        PacketArea.NONE);
  }

  @Override
  public boolean supports(BoundCall call) {
    Scratch scratch = set.scratch(call);
    return scratch != null
        && hasKernel(call)
        && canStoreResults(call)
        && scratch.packets.holds(Reduction.partBytes(call));
  }

  @Override
  public double estimate(BoundCall call) {
    if (!isScatter(call)) {
      return 6.8 + 0.00286 * sent(call);
    }
    int n = call.nRanks();
    // The line through large calls is too low for small ones.
    return Math.max(4.5 + 0.00286 * sent(call), 0.7 * n - 0.9 + (0.0024 + 0.0052 / n) * sent(call));
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    Scratch scratch = set.scratch(call);
    long rows = scratch.packets.kind().rows(Reduction.partBytes(call));
    reduction.use(scratch.packets);
    launch(stream, call, set.grid.blocksFor(rows, ROWS_PER_BLOCK), scratch.forPackets);
  }
}
