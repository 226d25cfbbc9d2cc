// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.device.DeviceStream;

/**
 * Each rank sends packets to the owner of each part, which sends packets of the reduced part:
 * {@code reduce_two_shots.cuh}.
 */
final class TwoShots extends ReduceAlgorithm {
  private static final int LEAST_THREADS = 128;

  // Small launches begin sooner, and rows arrive sooner where few warps share a multiprocessor.
  private static final int BLOCKS_BEFORE_MORE_THREADS = 64;

  // Rows of a warp up to which two ranks gain from launches with few enough blocks to overlap.
  private static final long ROWS_TO_OVERLAP = 2;

  private final PacketArea area;

  TwoShots(ReduceSet set, PacketArea area) {
    super(
        set,
        "two-shots-" + area.kind().label(),
        set.kernels("two_shots_" + area.kind().label(), area.kind(), 0),
        area);
    this.area = area;
  }

  @Override
  public boolean needsNvlink() {
    return area.kind() == PacketArea.Kind.LL128;
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call().collective().reduces()
        && hasKernel(call)
        && area.holds(Reduction.partBytes(call));
  }

  @Override
  public double estimate(BoundCall call) {
    int n = call.nRanks();
    if (n == 2) {
      double latency = isScatter(call) ? 0 : 0.75;
      return switch (area.kind()) {
        case LL8 -> 2.0 + latency + 0.03 * sent(call);
        case LL128 -> 2.25 + latency + 0.0034 * sent(call);
        case SENTINEL -> 2.4 + latency / 4 + 0.00292 * sent(call);
      };
    }
    return switch (area.kind()) {
      case LL8 -> (isScatter(call) ? 2.15 : 3.4) + 0.0104 * sent(call);
      case LL128 -> (isScatter(call) ? 2.1 + 0.06 * n : 2.1 + 0.19 * n) + 0.0033 * sent(call);
      case SENTINEL -> (isScatter(call) ? 2.4 + 0.08 * n : 2.2 + 0.21 * n) + 0.00303 * sent(call);
    };
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    // The scatter has the most rows: one for each peer.
    long warps = area.kind().rows(Reduction.partBytes(call)) * (call.nRanks() - 1);
    int threads = LEAST_THREADS;
    while (threads < mostThreads() && warps * WARP_SIZE > threads * BLOCKS_BEFORE_MORE_THREADS) {
      threads *= 2;
    }
    int blocks = set.grid.blocksFor(warps, threads / WARP_SIZE);
    if (call.nRanks() == 2
        && warps <= ROWS_TO_OVERLAP * set.grid.overlapping() * threads / WARP_SIZE) {
      blocks = Math.min(blocks, set.grid.overlapping());
    }
    launch(stream, call, blocks, threads);
  }

  /** Returns the limit that reduce.cu compiles the kernels for. */
  private int mostThreads() {
    return area.kind() == PacketArea.Kind.LL128 ? GpuGrid.MAX_THREADS / 2 : GpuGrid.MAX_THREADS;
  }
}
