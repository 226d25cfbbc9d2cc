// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.device.DeviceStream;

/** Each rank sends its whole input to all others: {@code reduce_one_shot.cuh}. */
final class OneShot extends ReduceAlgorithm {
  private static final int LEAST_WARPS = 4;
  private static final int MOST_WARPS = GpuGrid.MAX_THREADS / WARP_SIZE;

  private final PacketArea area;

  OneShot(ReduceSet set, PacketArea area) {
    super(
        set,
        "one-shot-" + area.kind().label(),
        set.kernels("one_shot_" + area.kind().label(), area.kind(), 0),
        area);
    this.area = area;
  }

  @Override
  public boolean needsNvlink() {
    return area.kind() == PacketArea.Kind.LL128;
  }

  @Override
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    return (what == Collective.ALL_REDUCE || what == Collective.REDUCE)
        && hasKernel(call)
        && area.holds(call.totalBytes());
  }

  @Override
  public double estimate(BoundCall call) {
    double sent = call.totalBytes() / KIB * (call.nRanks() - 1);
    if (call.nRanks() == 2) {
      return switch (area.kind()) {
        case LL8 -> 1.97 + 0.03 * sent;
        case LL128 -> 2.25 + 0.004 * sent;
        case SENTINEL -> 2.3 + 0.0034 * sent;
      };
    }
    double base = 1.85 + 0.06 * call.nRanks();
    return switch (area.kind()) {
      case LL8 -> base + 0.0104 * sent;
      case LL128 -> base + 0.19 + 0.004 * sent;
      case SENTINEL -> base + 0.35 + 0.004 * sent;
    };
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    long rows = area.kind().rows(call.totalBytes());
    int warps = call.nRanks() == 2 ? warpsOfPair(rows) : warpsOfMany(rows, call.nRanks());
    int blocks = set.grid.blocksFor(rows, call.nRanks() == 2 ? warps : 1);
    launch(stream, call, blocks, WARP_SIZE * warps);
  }

  /** Returns the warps of a block, one a row: few blocks begin sooner, and may overlap others. */
  private int warpsOfPair(long rows) {
    int warps = LEAST_WARPS;
    while (warps < MOST_WARPS && set.grid.overlapping() * warps < rows) {
      warps *= 2;
    }
    return warps;
  }

  /** Returns the warps of a block: one a rank for each row that the block handles. */
  private int warpsOfMany(long rows, int nRanks) {
    int blocks = set.grid.blocksFor(rows, 1);
    return nRanks * (int) Math.min(MOST_WARPS / nRanks, (rows + blocks - 1) / blocks);
  }
}
