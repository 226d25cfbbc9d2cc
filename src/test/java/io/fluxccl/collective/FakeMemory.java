// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.cuda.CudaDevice;
import jcuda.driver.CUcontext;
import jcuda.driver.JCudaDriver;

/** How much memory GPU 0 has left. */
public final class FakeMemory {
  private FakeMemory() {}

  /** The same once nothing is given back any more. */
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

  /** That memory in bytes. */
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
