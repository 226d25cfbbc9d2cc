// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.cuda.CudaDevice;
import jcuda.driver.CUcontext;
import jcuda.driver.JCudaDriver;

/** Reports the free memory of GPU 0. */
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
      gpu.bindThread();
      long[] free = new long[1];
      long[] total = new long[1];
      int result = JCudaDriver.cuMemGetInfo(free, total);
      if (result != 0) {
        throw new IllegalStateException("cuMemGetInfo gives " + result);
      }
      return free[0];
    } finally {
      JCudaDriver.cuCtxSetCurrent(new CUcontext());
    }
  }
}
