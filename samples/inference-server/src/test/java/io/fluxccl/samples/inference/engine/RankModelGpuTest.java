// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.matmul.MatrixProducts;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The tests of {@link RankModelTest} on GPUs, in bfloat16, or with {@code -Dinference.float32=true}
 * in 32 bits. Skipped with the reason if there is no GPU.
 */
@Tag("gpu")
class RankModelGpuTest extends RankModelTest {
  static final boolean FLOAT = Boolean.getBoolean(CudaKernels.FLOAT_PROPERTY);

  /** FluxCCL's driver for tests, whose kernels run on the CPU: some hundred times slower. */
  static final boolean EMULATED = "1".equals(System.getenv("FAKE_CUDA_EMULATE"));

  @BeforeAll
  static void requireGpu() {
    assumeTrue(CudaDriver.count() > 0, () -> CudaDriver.unavailableBecause().orElse("no GPU"));
    String problem = MatrixProducts.unavailableBecause().orElse("");
    assumeTrue(problem.isEmpty(), problem);
  }

  @Override
  DeviceChoice device() {
    return DeviceChoice.CUDA;
  }

  @Override
  float tolerance() {
    return FLOAT ? 1e-4f : 0.15f;
  }

  @Override
  int prompts() {
    return EMULATED ? 3 : super.prompts();
  }

  @Override
  int tokens() {
    return EMULATED ? 6 : super.tokens();
  }

  @Override
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldGenerateEqualTokensAloneAndInABatch(int nRanks) throws IOException {
    assumeTrue(!EMULATED || nRanks == 2, "half a minute each on the CPU");
    super.shouldGenerateEqualTokensAloneAndInABatch(nRanks);
  }

  @Override
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldChooseTheTokensOfKernelsOnTheHost(int nRanks) throws IOException {
    assumeTrue(!EMULATED || nRanks == 2, "some seconds each on the CPU");
    super.shouldChooseTheTokensOfKernelsOnTheHost(nRanks);
  }

  @Override
  @Test
  void shouldGenerateEqualTokensOnAnyNumberOfRanks() throws IOException {
    assumeTrue(FLOAT, "each rank's part of a sum is rounded to bfloat16");
    super.shouldGenerateEqualTokensOnAnyNumberOfRanks();
  }

  @Test
  void shouldAddPartsOfRanksAsAnAllReduceDoes() throws IOException {
    assumeTrue(!FLOAT, "only bfloat16 is added by a kernel");
    List<float[]> logits = new ArrayList<>();
    try {
      for (String isOn : List.of("true", "false")) {
        System.setProperty(PeerSums.PROPERTY, isOn);
        onRanks(
            2,
            new ModelOptions(4, 2, 20, 10),
            models -> {
              assertThat(PeerSums.areFor(models.group())).isEqualTo(isOn.equals("true"));
              models.generate(List.of(PROMPT), 5, Sampling.GREEDY, (index, row) -> logits.add(row));
            });
      }
    } finally {
      System.clearProperty(PeerSums.PROPERTY);
    }
    assertThat(logits).hasSize(10);
    for (int i = 0; i < 5; i++) {
      assertThat(logits.get(i)).isEqualTo(logits.get(i + 5));
    }
  }
}
