// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.host.ChildJvm;
import io.fluxccl.testing.FakeCuda;
import java.util.List;
import org.junit.jupiter.api.Test;

@FakeCuda
class CudaDeviceFakeTest extends CudaDeviceContract {
  @Test
  void shouldFreeMemoryOfOtherGpusWhenOneHasFailed() throws Exception {
    try (ChildJvm child = ChildJvm.start(FailedGpuProcess.class, List.of())) {
      assertThat(child.readLine()).isEqualTo(FailedGpuProcess.FREED);
    }
  }
}
