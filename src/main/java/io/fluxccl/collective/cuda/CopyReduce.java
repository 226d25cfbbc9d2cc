package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaStream;

/**
 * The largest calls: copy engines move every slice of the parts to their owners' scratch, one peer
 * after the other, in the order in which every rank sends to another; a kernel on a branch reduces
 * a slice while they move the next; and they bring the results to everybody.
 *
 * <pre>
 *   stream   meet, copies of slice 0, meet, copies of slice 1, meet, results of 0, results of 1, meet
 *   branch                              reduce slice 0           reduce slice 1
 * </pre>
 *
 * <p>The first meeting tells that scratch is free and outputs may be written, those behind copies
 * that a slice is there, the last that all results are.
 */
final class CopyReduce implements CollectiveAlgorithm {
  private static final String BRANCH = "reduce";
  private static final int WARP_SIZE = 32;

  // Where slices end, in 64ths of a part. With nothing to hand on, what counts is a short last one.
  private static final int UNITS = 64;
  private static final int[] ALL_REDUCE_SLICES = {0, 32, UNITS};
  private static final int[] REDUCE_SCATTER_SLICES = {0, 54, UNITS};

  private final ReduceSet set;
  private final Kernel meet;
  private final GpuKernels reduce;
  private final Reduction task = new Reduction(PacketArea.NONE);

  CopyReduce(ReduceSet set) {
    this.set = set;
    this.meet = set.kernel("meet");
    this.reduce = set.kernels("slice", PacketKind.LL128);
  }

  @Override
  public String name() {
    return "copy-engines-reduce";
  }

  @Override
  public boolean supports(BoundCall call) {
    ScratchSpace space = set.scratch(call);
    return space != null
        && (call.call().collective() == Collective.ALL_REDUCE && call.isOutputRegistered()
            || call.call().collective() == Collective.REDUCE_SCATTER)
        && Reduction.partBytes(call) <= space.slotBytes();
  }

  @Override
  public double estimate(BoundCall call) {
    return ReduceModel.copyEngines(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    CudaStream main = (CudaStream) stream;
    CudaStream branch = main.branch(BRANCH);
    ScratchSpace space = set.scratch(call);
    boolean gathers = call.call().collective() == Collective.ALL_REDUCE;
    int[] slices = gathers ? ALL_REDUCE_SLICES : REDUCE_SCATTER_SLICES;
    meet(main, call);
    for (int i = 0; i + 1 < slices.length; i++) {
      long begin = at(call, slices[i]);
      long end = at(call, slices[i + 1]);
      scatter(main, call, space, begin, end);
      meet(main, call);
      branch.waitFor(main);
      // Before the next is enqueued there: this is to wait for the slice before.
      main.waitFor(branch);
      branch.launch(
          reduce.of(call.call().type()),
          set.grid().maxBlocks(),
          GpuGrid.MAX_THREADS,
          KernelArgs.of(
              set.peers().bind(call), task.bind(call), space.forSlots(), begin, end - begin));
      if (gathers && i > 0) {
        gather(main, call, at(call, slices[i - 1]), begin);
      }
    }
    main.waitFor(branch);
    if (gathers) {
      gather(main, call, at(call, slices[slices.length - 2]), at(call, UNITS));
    }
    meet(main, call);
  }

  /** A place in a part; a whole number of cache lines. */
  private static long at(BoundCall call, int units) {
    long part = Reduction.partBytes(call);
    return units == UNITS ? part : part / UNITS / WARP_SIZE * WARP_SIZE * units;
  }

  private void meet(CudaStream stream, BoundCall call) {
    stream.launch(meet, 1, WARP_SIZE, KernelArgs.of(set.peers().bind(call)));
  }

  private static void scatter(
      CudaStream stream, BoundCall call, ScratchSpace space, long begin, long end) {
    int n = call.nRanks();
    for (int k = 1; k < n; k++) {
      int peer = (call.rank() + k) % n;
      long part = peer * Reduction.partBytes(call);
      long size = Math.min(end, call.totalBytes() - part) - begin;
      if (size > 0) {
        stream.copyAsync(
            space.slotsOn(peer) + call.rank() * space.slotBytes() + begin,
            call.call().input().address() + peer * Reduction.inputStride(call) + begin,
            size);
      }
    }
  }

  private static void gather(CudaStream stream, BoundCall call, long begin, long end) {
    int n = call.nRanks();
    long part = call.rank() * Reduction.partBytes(call);
    long size = Math.min(end, call.totalBytes() - part) - begin;
    for (int k = 1; k < n && size > 0; k++) {
      int peer = (call.rank() + k) % n;
      stream.copyAsync(
          call.outputOn(peer) + part + begin, call.call().output().address() + part + begin, size);
    }
  }
}
