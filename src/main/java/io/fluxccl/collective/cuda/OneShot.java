package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;

/** Everybody sends its whole input to everybody: {@code reduce_one_shot.cuh}. */
final class OneShot implements CollectiveAlgorithm {
  private static final int WARP_SIZE = 32;
  private static final int LEAST_WARPS = 4;
  private static final int MOST_WARPS = GpuGrid.MAX_THREADS / WARP_SIZE;

  private final ReduceSet set;
  private final PacketArea area;
  private final GpuKernels kernels;
  private final Reduction task;

  OneShot(ReduceSet set, PacketArea area) {
    this.set = set;
    this.area = area;
    this.kernels = set.kernels("one_shot_" + area.kind().label(), area.kind());
    this.task = new Reduction(area);
  }

  @Override
  public String name() {
    return "one-shot-" + area.kind().label();
  }

  @Override
  public boolean supports(BoundCall call) {
    return (call.call().collective() == Collective.ALL_REDUCE
            || call.call().collective() == Collective.REDUCE)
        && kernels.has(call.call().type())
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
    stream.launch(
        set.grid().forBlocks(kernels.of(call.call().type()), blocks),
        blocks,
        WARP_SIZE * warps,
        KernelArgs.of(set.peers().bind(call), task.bind(call)));
  }

  /** Of a block that has a warp for each row: few blocks begin sooner, and may overlap others. */
  private int warpsOfPair(long rows) {
    int warps = LEAST_WARPS;
    while (warps < MOST_WARPS && set.grid().overlapping() * warps < rows) {
      warps *= 2;
    }
    return warps;
  }

  /** Of a block with a warp for each rank, which takes more than one row where it has room. */
  private int warpsOfMany(long rows, int nRanks) {
    int blocks = set.grid().blocksFor(rows, 1);
    return nRanks * (int) Math.min(MOST_WARPS / nRanks, (rows + blocks - 1) / blocks);
  }
}
