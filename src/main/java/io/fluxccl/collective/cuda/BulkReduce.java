package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;

/**
 * Sentinel packets to the owner of each part, bulk copies of what it reduced: {@code
 * reduce_bulk.cuh}.
 */
final class BulkReduce implements CollectiveAlgorithm {
  /** Of which the kernel makes use. */
  static final int LEAST_CAPABILITY = 90;

  /** Two pieces of {@code kPieceRows} rows. */
  private static final int SHARED_BYTES = 2 * 64 * 512;

  private static final int ROWS_PER_BLOCK = 16;

  private final ReduceSet set;
  private final GpuKernels kernels;

  BulkReduce(ReduceSet set) {
    this.set = set;
    this.kernels = set.kernels("bulk", PacketKind.SENTINEL, SHARED_BYTES);
  }

  @Override
  public String name() {
    return "two-shots-bulk";
  }

  @Override
  public boolean supports(BoundCall call) {
    ScratchSpace space = set.scratch(call);
    return space != null
        && kernels.has(call.call().type())
        && (call.call().collective() == Collective.ALL_REDUCE && call.isOutputRegistered()
            || call.call().collective() == Collective.REDUCE_SCATTER)
        && space.packets().holds(Reduction.partBytes(call));
  }

  @Override
  public double estimate(BoundCall call) {
    return ReduceModel.bulk(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    ScratchSpace space = set.scratch(call);
    stream.launch(
        kernels.of(call.call().type()),
        set.grid()
            .blocksFor(space.packets().kind().rows(Reduction.partBytes(call)), ROWS_PER_BLOCK),
        GpuGrid.MAX_THREADS,
        KernelArgs.of(
            set.peers().bind(call), new Reduction(space.packets()).bind(call), space.forPackets()));
  }
}
