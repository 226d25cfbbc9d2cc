// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDeviceOptions;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaMemoryKind;

/** The GPUs of two ranks and how their memory is allocated. */
enum IpcPlacement {
  ONE_GPU(1, CudaMemoryKind.PLAIN),
  TWO_GPUS(2, CudaMemoryKind.PLAIN),

  /** Memory is shared by file descriptors. */
  TWO_GPUS_WITH_VMM(2, CudaMemoryKind.VMM);

  private final int gpus;
  private final CudaMemoryKind memory;

  IpcPlacement(int gpus, CudaMemoryKind memory) {
    this.gpus = gpus;
    this.memory = memory;
  }

  /** Opens a rank's GPU; skips the test where there are too few. */
  CudaDevice open(int rank) {
    int found = CudaDriver.count();
    assumeTrue(found >= gpus, "needs " + gpus + " GPUs, there are " + found);
    return CudaDevice.open(rank % gpus, CudaDeviceOptions.DEFAULT.withMemory(memory));
  }
}
