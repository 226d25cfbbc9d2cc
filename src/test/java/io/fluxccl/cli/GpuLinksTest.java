// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Links between GPUs in the output of {@code info}. */
@FakeCuda
class GpuLinksTest {
  /** Prints the line of the first GPU. */
  static final class Info {
    public static void main(String[] args) {
      System.out.println(SystemReport.gpus().get(0));
    }
  }

  @Test
  void shouldShowAnNvlink() {
    assertThat(SystemReport.gpus().get(0)).endsWith("reaches cuda:1 by NVLink");
  }

  @Test
  void shouldShowThatGpusReachEachOtherByPcie() {
    try (ProcessRank process =
        TestJvms.of(1, Info.class).variables(Map.of("FAKE_CUDA_LINK", "pcie")).startRank(0)) {
      assertThat(process.readLine()).endsWith("reaches cuda:1 by PCIe");
    }
  }
}
