// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.DataType;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CustomEpilogue;
import io.fluxccl.collective.Epilogue;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** The epilogue of docs/7-your-own-cuda-kernel.md, on emulated GPUs and on real ones. */
@EmulatedGpus
@RequiresGpus(2)
@Ranks(value = 2, onGpus = true, leakCheck = false)
class OwnEpilogueTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final int HIDDEN = 72;
  private static final int ROWS = 5;

  @Test
  void shouldGiveEachRowToTheFunction(LocalRanks ranks) throws Exception {
    String source =
        new String(
            OwnEpilogueTest.class.getResourceAsStream("/cuda/bias_silu.cu").readAllBytes(),
            StandardCharsets.UTF_8);
    try (CudaModule module = CudaModule.fromSource("bias_silu.cu", source)) {
      ranks.ranks().forEach(rank -> module.prepare((CudaDevice) rank.device()));
      ranks.run(LONG, rank -> check(rank, module));
    }
  }

  private static void check(LocalRank rank, CudaModule module) {
    int rows = ROWS;
    int hidden = HIDDEN;
    try (DeviceBuffer x = rank.device().allocate(ROWS * HIDDEN * 2);
        DeviceBuffer bias = rank.device().allocate(HIDDEN * Float.BYTES);
        DeviceBuffer out = rank.device().allocate(ROWS * HIDDEN * Float.BYTES)) {
      Epilogue biasSilu =
          CustomEpilogue.of(
              module,
              "biasSilu",
              new KernelStruct(16).putLong(bias.address()).putLong(out.address()),
              bias,
              out);
      Collectives collectives = rank.collectives();
      collectives.allReduce(x, rows, hidden, DataType.FLOAT16, biasSilu).block(LONG);
      CollectiveCall call =
          CollectiveCall.fusedAllReduce(x, ROWS, HIDDEN, DataType.FLOAT16, biasSilu);
      for (String algorithm : collectives.algorithmsFor(call)) {
        collectives.prefer(Collective.FUSED_ALL_REDUCE, Optional.of(algorithm));
        fill(x, bias, out);
        try (CapturedPipeline captured = collectives.pipeline().then(call).capture()) {
          captured.run().block(LONG);
        }
        FloatView result = FloatView.of(out);
        for (int i = 0; i < ROWS * HIDDEN; i++) {
          double sum = 2 * value(i) + i % HIDDEN;
          assertThat((double) result.get(i))
              .as("element %d by %s", i, algorithm)
              .isCloseTo(sum / (1 + Math.exp(-sum)), within(1e-4));
        }
        rank.awaitAll();
      }
      assertThat(collectives.algorithmsFor(call))
          .contains("fused-one-shot", "fused-two-shots", "all-reduce-then-epilogue");
    }
  }

  private static float value(int i) {
    return (i % 31 - 15) / 8f;
  }

  private static void fill(DeviceBuffer x, DeviceBuffer bias, DeviceBuffer out) {
    FloatView halves = FloatView.of(x, DataType.FLOAT16);
    FloatView biases = FloatView.of(bias);
    for (int i = 0; i < ROWS * HIDDEN; i++) {
      halves.put(i, value(i));
    }
    for (int i = 0; i < HIDDEN; i++) {
      biases.put(i, i);
    }
    FloatView.of(out).put(new float[ROWS * HIDDEN]);
  }
}
