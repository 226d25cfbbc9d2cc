package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;

/**
 * Packets to the owner of each part, and packets of what it reduced: {@code reduce_two_shots.cuh}.
 */
final class TwoShots implements CollectiveAlgorithm {
  private static final int WARP_SIZE = 32;
  private static final int LEAST_THREADS = 128;

  // Small launches begin sooner, and few rows are there sooner where few warps share a
  // multiprocessor.
  private static final int BLOCKS_BEFORE_MORE_THREADS = 64;

  // Between two ranks, for so many rows of a warp, it pays to have few enough blocks that launches
  // overlap.
  private static final long ROWS_TO_OVERLAP = 2;

  private final ReduceSet set;
  private final PacketArea area;
  private final GpuKernels kernels;
  private final Reduction task;

  TwoShots(ReduceSet set, PacketArea area) {
    this.set = set;
    this.area = area;
    this.kernels = set.kernels("two_shots_" + area.kind().label(), area.kind());
    this.task = new Reduction(area);
  }

  @Override
  public String name() {
    return "two-shots-" + area.kind().label();
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call().collective().reduces()
        && kernels.has(call.call().type())
        && area.holds(Reduction.partBytes(call));
  }

  @Override
  public double estimate(BoundCall call) {
    return ReduceModel.twoShots(area.kind(), call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    // The scatter has the most to do: a row for each peer.
    long warps = area.kind().rows(Reduction.partBytes(call)) * (call.nRanks() - 1);
    int threads = LEAST_THREADS;
    while (threads < mostThreads() && warps * WARP_SIZE > threads * BLOCKS_BEFORE_MORE_THREADS) {
      threads *= 2;
    }
    int blocks = set.grid().blocksFor(warps, threads / WARP_SIZE);
    if (call.nRanks() == 2
        && warps <= ROWS_TO_OVERLAP * set.grid().overlapping() * threads / WARP_SIZE) {
      blocks = Math.min(blocks, set.grid().overlapping());
    }
    stream.launch(
        set.grid().forBlocks(kernels.of(call.call().type()), blocks),
        blocks,
        threads,
        KernelArgs.of(set.peers().bind(call), task.bind(call)));
  }

  /** As reduce.cu says of the kernels. */
  private int mostThreads() {
    return area.kind() == PacketKind.LL128 ? GpuGrid.MAX_THREADS / 2 : GpuGrid.MAX_THREADS;
  }
}
