// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import org.junit.jupiter.api.Test;

@FakeCuda
class CudaDeviceFakeTest extends CudaDeviceContract {
  @Test
  void shouldFreeMemoryOfOtherGpusWhenOneHasFailed() throws Exception {
    try (ProcessRank child = TestJvms.start(FailedGpuProcess.class)) {
      assertThat(child.readLine()).isEqualTo(FailedGpuProcess.FREED);
    }
  }
}
