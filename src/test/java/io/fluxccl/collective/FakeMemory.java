// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.cuda.CudaDevice;
import jcuda.driver.CUcontext;
import jcuda.driver.JCudaDriver;

/** Reports the free memory of GPUs. */
public final class FakeMemory {
  private FakeMemory() {}

  /** Returns the free memory after it has not changed for 300 ms. */
  public static long settled() {
    long[] last = {free()};
    org.awaitility.Awaitility.await()
        .during(java.time.Duration.ofMillis(300))
        .until(
            () -> {
              long before = last[0];
              last[0] = free();
              return last[0] == before;
            });
    return last[0];
  }

  /** Returns the free memory of GPU 0 in bytes. */
  public static long free() {
    try (CudaDevice gpu = CudaDevice.open(0)) {
      return free(gpu);
    } finally {
      JCudaDriver.cuCtxSetCurrent(new CUcontext());
    }
  }

  /** Returns the free memory of a GPU in bytes; its context becomes that of the thread. */
  public static long free(CudaDevice gpu) {
    gpu.bindThread();
    long[] free = new long[1];
    assertThat(JCudaDriver.cuMemGetInfo(free, new long[1])).isZero();
    return free[0];
  }
}
