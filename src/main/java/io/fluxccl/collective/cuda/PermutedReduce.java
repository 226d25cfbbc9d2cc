package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;

/**
 * Plain stores to another peer in each step: {@code reduce_permuted.cuh}. Either straight to
 * registered outputs, or by way of scratch, which does for every call there is.
 */
final class PermutedReduce implements CollectiveAlgorithm {
  private static final int BYTES_PER_BLOCK = 16 << 10;

  private final ReduceSet set;
  private final Scratch staging;
  private final GpuKernels kernels;
  private final Reduction task = new Reduction(PacketArea.NONE);

  /**
   * The algorithm.
   *
   * @param staging scratch for everything; null for the algorithm that needs registered buffers
   */
  PermutedReduce(ReduceSet set, Scratch staging) {
    this.set = set;
    this.staging = staging;
    this.kernels = set.kernels("permuted", PacketKind.LL128);
  }

  @Override
  public String name() {
    return staging == null ? "permuted" : "permuted-staged";
  }

  @Override
  public boolean supports(BoundCall call) {
    return staging == null
        ? set.scratch(call) != null
            && (call.call().collective() == Collective.ALL_REDUCE && call.isOutputRegistered()
                || call.call().collective() == Collective.REDUCE_SCATTER)
        : call.call().collective().reduces();
  }

  @Override
  public double estimate(BoundCall call) {
    return staging == null ? ReduceModel.permuted(call) : ReduceModel.staged(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    stream.launch(
        kernels.of(call.call().type()),
        set.grid().blocksFor(Reduction.partBytes(call), BYTES_PER_BLOCK),
        GpuGrid.MAX_THREADS,
        KernelArgs.of(
            set.peers().bind(call),
            task.bind(call),
            staging == null ? set.scratch(call).forSlots() : staging));
  }
}
