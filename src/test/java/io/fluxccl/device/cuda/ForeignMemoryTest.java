// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.RequiresNativeLibrary;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.JCudaDriver;
import org.junit.jupiter.api.Test;

@RequiresGpus
@RequiresNativeLibrary
class ForeignMemoryTest extends ForeignMemoryContract {
  @Test
  void shouldRefuseMemoryOfAnotherContext() {
    device().makeCurrent();
    CUcontext own = new CUcontext();
    int created = JCudaDriver.cuCtxCreate(own, 0, device().context().device);
    assumeTrue(created == 0, "the driver makes no context: " + created);
    try {
      CUdeviceptr pointer = new CUdeviceptr();
      device().context().check(JCudaDriver.cuMemAlloc(pointer, 4096), "cuMemAlloc");
      assertRefused(() -> device().wrap(pointer, 64), "cuDevicePrimaryCtxRetain");
    } finally {
      JCudaDriver.cuCtxDestroy(own);
    }
  }
}
