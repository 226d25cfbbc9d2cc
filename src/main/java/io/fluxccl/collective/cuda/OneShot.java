package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;

/** Everybody sends its whole input to everybody: {@code reduce_one_shot.cuh}. */
final class OneShot implements CollectiveAlgorithm {
  private static final int WARP_SIZE = 32;

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
    int blocks = set.grid().blocksFor(rows, 1);
    // More than one row at once where blocks have room for that.
    int warpsOfRow = call.nRanks() == 2 ? 1 : call.nRanks();
    long most = GpuGrid.MAX_THREADS / WARP_SIZE / warpsOfRow;
    int rowsOfBlock = (int) Math.min(most, (rows + blocks - 1) / blocks);
    stream.launch(
        set.grid().forBlocks(kernels.of(call.call().type()), blocks),
        blocks,
        WARP_SIZE * warpsOfRow * rowsOfBlock,
        KernelArgs.of(set.peers().bind(call), task.bind(call)));
  }
}
