// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.Epilogue;
import io.fluxccl.collective.EpilogueKernels.Variant;
import io.fluxccl.collective.FusedAllReduce;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;

/**
 * All-reduce with an epilogue in the same kernel: {@code fused_rows.cuh}. A block has a row at a
 * time, in sentinel packets, which go to all ranks or to the rank that reduces the row for all.
 */
final class FusedReduce implements CollectiveAlgorithm {
  private static final double KIB = 1024;

  private final ReduceSet set;
  private final boolean inOneShot;
  private final PacketArea area;
  private final Reduction reduction;

  /**
   * Creates an algorithm.
   *
   * @param inOneShot whether each rank reduces all rows
   * @param area for packets of two shots; the launches of one family take turns in it
   */
  FusedReduce(ReduceSet set, boolean inOneShot, PacketArea area) {
    this.set = set;
    this.inOneShot = inOneShot;
    this.area = area;
    this.reduction = new Reduction(area);
  }

  @Override
  public String name() {
    return inOneShot ? "fused-one-shot" : "fused-two-shots";
  }

  @Override
  public ReductionOrder order(BoundCall call) {
    return ReductionOrder.OF_RANKS;
  }

  @Override
  public boolean supports(BoundCall bound) {
    if (!(bound.call() instanceof FusedAllReduce call) || !variant(bound).holds(call.rowBytes())) {
      return false;
    }
    // In two shots every rank must reduce a row: only then it receives packets from all others.
    boolean hasRows = inOneShot || call.rows() >= bound.nRanks();
    return hasRows && area.slotBytes() / area.kind().rowBytes(call.rowBytes()) >= slotRows(bound);
  }

  /** Returns how many rows go through a rank's slot. */
  private long slotRows(BoundCall bound) {
    long rows = ((FusedAllReduce) bound.call()).rows();
    return inOneShot ? rows : (rows + bound.nRanks() - 1) / bound.nRanks();
  }

  private Variant variant(BoundCall bound) {
    if (!inOneShot) {
      return Variant.TWO2;
    }
    long rowBytes = ((FusedAllReduce) bound.call()).rowBytes();
    if (bound.nRanks() > 2) {
      return Variant.ONE2;
    }
    if (Variant.PAIR1.holds(rowBytes)) {
      return Variant.PAIR1;
    }
    // Together with a launch that overlaps it, no more than half of the GPU.
    if (Variant.WIDE1.holds(rowBytes) && slotRows(bound) <= set.grid.overlapping() / 2) {
      return Variant.WIDE1;
    }
    return Variant.PAIR2.holds(rowBytes) ? Variant.PAIR2 : Variant.PAIR4;
  }

  @Override
  public double estimate(BoundCall call) {
    int n = call.nRanks();
    double bytes = call.totalBytes() / KIB;
    // The time of further rows that a block reduces one after the other.
    double more = 0.8 * (rounds(call) * (inOneShot ? 1 : n) - 1);
    if (inOneShot) {
      return n == 2 ? 2.9 + 0.0034 * bytes : 2.9 + 0.06 * n + 0.004 * bytes * (n - 1) + more;
    }
    if (n == 2) {
      return 7 + 0.0028 * bytes;
    }
    return 3.6 + 0.21 * n + 0.00303 * 2 * bytes * (n - 1) / n + more;
  }

  private double rounds(BoundCall call) {
    return Math.ceil((double) slotRows(call) / set.grid.maxBlocks());
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall bound) {
    FusedAllReduce call = (FusedAllReduce) bound.call();
    Variant variant = variant(bound);
    int blocks = set.grid.blocksFor(slotRows(bound), 1);
    Epilogue.OnGpus epilogue = (Epilogue.OnGpus) call.epilogue();
    CudaKernel kernel = epilogue.kernels().kernel(variant, call.type());
    stream.launch(
        set.grid.forBlocks(kernel, blocks),
        blocks,
        variant.threads(call.rowBytes()),
        KernelArgs.of(
            set.peers.bind(bound),
            reduction.ofRows(call.countBytes(), call.rowBytes()),
            epilogue.argument()));
  }
}
