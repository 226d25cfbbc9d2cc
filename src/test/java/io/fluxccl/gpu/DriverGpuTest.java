// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.testing.RequiresGpus;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.junit.jupiter.api.Test;

@RequiresGpus
class DriverGpuTest {
  @Test
  void shouldAnswerForEachGpu() {
    assertThat(CudaDriver.unavailableBecause()).isEmpty();
    int[] version = new int[1];
    assertThat(JCudaDriver.cuDriverGetVersion(version)).isEqualTo(CUresult.CUDA_SUCCESS);
    assertThat(version[0]).isGreaterThanOrEqualTo(12_000);
  }
}
