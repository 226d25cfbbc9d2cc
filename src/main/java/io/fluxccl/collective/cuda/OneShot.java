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
  public boolean supports(BoundCall call) {
    Collective what = call.call().collective();
    return (what == Collective.ALL_REDUCE || what == Collective.REDUCE)
        && hasKernel(call)
        && area.holds(call.totalBytes());
  }

  @Override
  public double estimate(BoundCall call) {
    return ReduceModel.oneShot(area.kind(), call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    long rows = area.kind().rows(call.totalBytes());
    int warps = call.nRanks() == 2 ? warpsOfPair(rows) : warpsOfMany(rows, call.nRanks());
    int blocks = set.grid().blocksFor(rows, call.nRanks() == 2 ? warps : 1);
    launch(stream, call, blocks, WARP_SIZE * warps);
  }

  /** Returns the warps of a block, one a row: few blocks begin sooner, and may overlap others. */
  private int warpsOfPair(long rows) {
    int warps = LEAST_WARPS;
    while (warps < MOST_WARPS && set.grid().overlapping() * warps < rows) {
      warps *= 2;
    }
    return warps;
  }

  /** Returns the warps of a block: one a rank for each row that the block handles. */
  private int warpsOfMany(long rows, int nRanks) {
    int blocks = set.grid().blocksFor(rows, 1);
    return nRanks * (int) Math.min(MOST_WARPS / nRanks, (rows + blocks - 1) / blocks);
  }
}
