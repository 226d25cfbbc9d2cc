package io.fluxccl.transport.ib;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;

/** Memory of emulated GPUs over real queue pairs, staged in pinned memory on both sides. */
@EmulatedGpus
@RequiresRdma
class StagedCudaIbTest extends StagedIbConnectionContract {
  StagedCudaIbTest() {
    super(IbRanks::stagedOnGpus);
  }

  /** The connections of a host's memory have shown it in full. */
  @Override
  protected int signalRounds() {
    return 500;
  }

  @Override
  protected int flushRounds() {
    return 500;
  }

  @Override
  protected int manyWrites() {
    return 500;
  }

  @Override
  protected int longWrite() {
    return 1 << 20;
  }
}
