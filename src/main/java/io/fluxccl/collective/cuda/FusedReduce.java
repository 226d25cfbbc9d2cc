// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Epilogue;
import io.fluxccl.collective.EpilogueKernels.Variant;
import io.fluxccl.collective.FusedAllReduce;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.List;

/**
 * All-reduce with an epilogue in the same kernel: {@code norm_rows.cuh}, and {@code fused_rows.cuh}
 * for custom epilogues. Rows go in sentinel packets to all ranks, or to the rank that reduces the
 * row for all.
 *
 * @param grid of the lane
 * @param inOneShot whether each rank reduces all rows
 * @param area of the packets
 * @param peers the argument of kernels for custom epilogues
 * @param reduction likewise
 * @param norm the argument of kernels for the library's own epilogue
 */
record FusedReduce(
    GpuGrid grid,
    boolean inOneShot,
    PacketArea area,
    MappedPeers peers,
    Reduction reduction,
    NormTask norm) {
  /** The most bytes of two ranks that warps on their own reduce faster than blocks. */
  private static final long MOST_BYTES_OF_WARPS_OF_PAIR = 64 << 10;

  /**
   * The rows of a fused all-reduce with the library's own epilogue: the twin of {@code
   * norm_rows.cuh}, which defines the layout. Filled in for each call; used by the one thread that
   * enqueues.
   */
  static final class NormTask extends KernelStruct {
    private static final int INPUT_OFFSET = MappedPeers.MAX_RANKS * Long.BYTES;
    private static final int ROWS_OFFSET = INPUT_OFFSET + 3 * Long.BYTES + 3 * Integer.BYTES;
    private static final int LENGTH = ROWS_OFFSET + 3 * Integer.BYTES;

    /**
     * Creates the struct of a region on a lane.
     *
     * @param states addresses of the region, by rank
     * @param area of the packets; a packet of 8 bytes for each of them follows it
     */
    NormTask(MappedGpuSet set, long[] states, PacketArea area) {
      super(LENGTH);
      int n = set.nRanks;
      for (int k = 0; k < n; k++) {
        putLong(states[(set.rank + k) % n] + area.offset());
      }
      at(INPUT_OFFSET + Long.BYTES)
          .putLong(states[set.rank])
          .putLong(set.abort().deviceAddress())
          .putInt(area.slotBytes())
          .putInt(set.rank)
          .putInt(n);
    }

    /**
     * Fills in a call.
     *
     * @return this, valid until the next call
     */
    NormTask bind(FusedAllReduce call) {
      at(INPUT_OFFSET).putLong(call.input().address());
      at(ROWS_OFFSET)
          .putInt((int) call.rows())
          .putInt((int) (call.rowBytes() / FusedAllReduce.WORD));
      putInt(Float.floatToRawIntBits(1f / call.hidden()));
      return this;
    }
  }

  /**
   * Returns the algorithm in which each rank reduces all rows, and the one in which it reduces its
   * part of them.
   *
   * @param area for packets of two shots; the launches of a lane take turns in it
   */
  static List<GpuAlgorithm> algorithms(
      MappedGpuSet set, MappedPeers peers, long[] states, PacketArea area) {
    NormTask norm = new NormTask(set, states, area);
    Reduction reduction = new Reduction(area);
    return List.of(
        new FusedReduce(set.grid, true, area, peers, reduction, norm).algorithm("fused-one-shot"),
        new FusedReduce(set.grid, false, area, peers, reduction, norm)
            .algorithm("fused-two-shots"));
  }

  private GpuAlgorithm algorithm(String name) {
    return new GpuAlgorithm(name, Reductions.ANY_LINK, this::supports, this::micros, this::enqueue);
  }

  private boolean supports(BoundCall bound) {
    if (!(bound.call() instanceof FusedAllReduce call)) {
      return false;
    }
    Variant variant = variant(call, bound.nRanks());
    long groups = Variant.groups(call.rowBytes());
    // Without two groups of a row in one warp, no warp waits for its own later work.
    boolean fits =
        variant.isOfWarps()
            ? groups <= (long) grid.smallBlocks() * GpuGrid.WARPS_OF_SMALL
            : variant.holds(call.rowBytes());
    // In two shots every rank must reduce a row: only then it receives packets from all others.
    boolean hasRows = inOneShot || call.rows() >= bound.nRanks();
    return fits
        && hasRows
        && area.slotBytes() / area.kind().rowBytes(call.rowBytes()) >= slotRows(bound);
  }

  /** Returns how many rows go through a rank's slot. */
  private long slotRows(BoundCall bound) {
    long rows = ((FusedAllReduce) bound.call()).rows();
    return inOneShot ? rows : (rows + bound.nRanks() - 1) / bound.nRanks();
  }

  private Variant variant(FusedAllReduce call, int nRanks) {
    if (!(call.epilogue() instanceof AddRmsNorm)) {
      return inOneShot ? Variant.ROW_ONE : Variant.ROW_TWO;
    }
    if (inOneShot && nRanks == 2 && call.countBytes() > MOST_BYTES_OF_WARPS_OF_PAIR) {
      // A wide block of a long row fills a multiprocessor. Such blocks, and those of a launch that
      // overlaps theirs, take no more than half of the GPU.
      boolean isShort = Variant.PAIR.holds(2 * call.rowBytes());
      boolean isWide = isShort || call.rows() <= grid.overlapping() / 2;
      Variant variant = isWide ? Variant.PAIR_WIDE : Variant.PAIR;
      if (variant.holds(call.rowBytes())) {
        return variant;
      }
    }
    return Variant.ofWarps(inOneShot, nRanks);
  }

  /** Estimates, fitted to measurements on four H200, and for one shot on two. */
  private double micros(BoundCall call) {
    int n = call.nRanks();
    double bytes = call.totalBytes() / Reductions.KIB;
    if (inOneShot) {
      return n == 2 ? 2.9 + 0.0034 * bytes : 3 + 0.14 * n + 0.0031 * bytes * (n - 1);
    }
    // Beyond 1 MiB, warps handle several groups one after the other.
    double more = 0.0017 * Math.max(0, bytes - Reductions.KIB);
    return 3.05 + 0.475 * n + 0.0048 * bytes * (n - 1) / n + more;
  }

  private void enqueue(DeviceStream stream, BoundCall bound) {
    FusedAllReduce call = (FusedAllReduce) bound.call();
    Variant variant = variant(call, bound.nRanks());
    Epilogue.OnGpus epilogue = (Epilogue.OnGpus) call.epilogue();
    CudaKernel kernel = epilogue.kernels().kernel(variant, call.type());
    int threads = variant.threads(call.rowBytes());
    KernelArgs args =
        call.epilogue() instanceof AddRmsNorm
            ? KernelArgs.of(norm.bind(call), epilogue.argument())
            : KernelArgs.of(
                peers.bind(bound),
                reduction.ofRows(call.countBytes(), call.rowBytes()),
                epilogue.argument());
    if (variant.isOfWarps()) {
      int blocks = grid.smallBlocksFor(slotRows(bound) * Variant.groups(call.rowBytes()));
      // Beside blocks that fill a multiprocessor, each small block may take one of those left.
      CudaKernel launched =
          bound.nRanks() == 2
              ? grid.forBlocks(kernel, blocks)
              : grid.forSmallBlocks(kernel, blocks);
      stream.launch(launched, blocks, threads, args);
      return;
    }
    int blocks = grid.blocksFor(slotRows(bound), 1);
    stream.launch(grid.forBlocks(kernel, blocks), blocks, threads, args);
  }
}
