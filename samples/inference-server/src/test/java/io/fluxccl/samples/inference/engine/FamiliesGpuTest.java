// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.samples.inference.model.LlamaConfig;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;

/** The tests of {@link FamiliesTest} on GPUs, as {@link RankModelGpuTest} does those of another. */
@Tag("gpu")
class FamiliesGpuTest extends FamiliesTest {
  @BeforeAll
  static void requireGpu() {
    RankModelGpuTest.requireGpu();
  }

  @Override
  DeviceChoice device() {
    return DeviceChoice.CUDA;
  }

  /** Errors of bfloat16 reach 0.17; without a bias, norm, window or scale logits differ by 0.5. */
  @Override
  float tolerance() {
    return RankModelGpuTest.FLOAT ? 1e-4f : 0.3f;
  }

  /** The driver for tests is slow, and has kernels for one shape of heads only. */
  @Override
  List<Integer> ranks(LlamaConfig config) {
    if (!RankModelGpuTest.EMULATED) {
      return super.ranks(config);
    }
    List<Integer> ranks =
        Stream.of(config.kvHeads() == 4 && config.windows().contains(8) ? 4 : 2, 2, 1)
            .filter(n -> config.headDim() == 8 && config.headsOf(0, n).group() == 2)
            .limit(1)
            .toList();
    assumeTrue(!ranks.isEmpty(), "heads of another shape");
    return ranks;
  }

  @Override
  int steps(int prompt) {
    return RankModelGpuTest.EMULATED ? new int[] {0, 2, 0}[prompt] : super.steps(prompt);
  }
}
