// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.collective.cuda.GpuGrid.WARP_SIZE;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.cuda.GpuAlgorithm.Trait;
import io.fluxccl.collective.cuda.Reductions.Kernels;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaStream;
import java.util.Set;

/**
 * For the largest calls: copy engines copy every slice of the parts to the owners' scratch, one
 * peer after the other, each rank in another order. A kernel on a branch reduces a slice while they
 * copy the next. Then they copy the results to all ranks.
 *
 * <pre>
 *   stream   barrier, copy slice 0, barrier, copy slice 1, barrier, results of 0, results of 1, barrier
 *   branch                                   reduce slice 0        reduce slice 1
 * </pre>
 *
 * <p>After the first barrier scratch is free and outputs may be written; after the next ones a
 * slice has arrived; after the last all results have.
 *
 * @param set of the algorithm
 * @param slices the kernels that reduce a slice
 * @param barrier the kernel of a barrier of all ranks
 */
record CopyReduce(MappedGpuSet set, Kernels slices, CudaKernel barrier) {
  private static final String BRANCH = "reduce";

  // The ends of the slices, in 64ths of a part. Without results to copy, a short last slice is
  // best.
  private static final int UNITS = 64;
  private static final int[] ALL_REDUCE_SLICES = {0, 32, UNITS};
  private static final int[] REDUCE_SCATTER_SLICES = {0, 54, UNITS};

  GpuAlgorithm algorithm() {
    return new GpuAlgorithm(
        "copy-engines-reduce",
        Set.of(Trait.ORDERED, Trait.COPY_ENGINES),
        this::supports,
        CopyReduce::micros,
        this::enqueue);
  }

  private boolean supports(BoundCall call) {
    Scratch scratch = set.scratch(call);
    return scratch != null
        && Reductions.canStoreResults(call)
        && Reduction.partBytes(call) <= scratch.slotBytes;
  }

  private static double micros(BoundCall call) {
    int peers = call.nRanks() - 1;
    double sent = Reductions.sent(call);
    if (Reductions.isScatterOfPair(call)) {
      return 72 + 0.0031 * sent;
    }
    return Reductions.isScatter(call)
        ? 155 + 0.00265 * sent
        : 20 + 100 * Math.min(peers, 3) + 0.0026 * sent;
  }

  private void enqueue(DeviceStream stream, BoundCall call) {
    CudaStream main = (CudaStream) stream;
    CudaStream branch = main.branch(BRANCH);
    Scratch scratch = set.scratch(call);
    boolean gathers = call.call().collective() == Collective.ALL_REDUCE;
    int[] ends = gathers ? ALL_REDUCE_SLICES : REDUCE_SCATTER_SLICES;
    barrier(main, call);
    for (int i = 0; i + 1 < ends.length; i++) {
      long begin = at(call, ends[i]);
      long end = at(call, ends[i + 1]);
      scatter(main, call, scratch, begin, end);
      barrier(main, call);
      branch.waitFor(main);
      // Before the next slice is enqueued on the branch: the stream waits for the slice before.
      main.waitFor(branch);
      branch.launch(
          slices.of(call),
          set.grid.maxBlocks(),
          GpuGrid.MAX_THREADS,
          KernelArgs.of(
              slices.peers().bind(call),
              slices.reduction().bind(call),
              scratch.forSlots,
              begin,
              end - begin));
      if (gathers && i > 0) {
        gather(main, call, at(call, ends[i - 1]), begin);
      }
    }
    main.waitFor(branch);
    if (gathers) {
      gather(main, call, at(call, ends[ends.length - 2]), at(call, UNITS));
    }
    barrier(main, call);
  }

  /** Returns an offset in a part; a whole number of cache lines. */
  private static long at(BoundCall call, int units) {
    long part = Reduction.partBytes(call);
    return units == UNITS ? part : part / UNITS / WARP_SIZE * WARP_SIZE * units;
  }

  private void barrier(CudaStream stream, BoundCall call) {
    stream.launch(barrier, 1, WARP_SIZE, KernelArgs.of(slices.peers().bind(call)));
  }

  private static void scatter(
      CudaStream stream, BoundCall call, Scratch scratch, long begin, long end) {
    int n = call.nRanks();
    for (int k = 1; k < n; k++) {
      int peer = (call.rank() + k) % n;
      long part = peer * Reduction.partBytes(call);
      long size = Math.min(end, call.totalBytes() - part) - begin;
      if (size > 0) {
        stream.copyAsync(
            scratch.slotsOn(peer) + call.rank() * scratch.slotBytes + begin,
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
