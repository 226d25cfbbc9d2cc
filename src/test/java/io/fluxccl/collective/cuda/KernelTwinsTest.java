// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.channel.ChannelFamily;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import org.junit.jupiter.api.Test;

/** Kernels for each type and number of GPUs. {@code TwinsTest} compares constants and layouts. */
class KernelTwinsTest {
  private static final Path KERNELS = Path.of("src/main/cuda/collectives");

  private static String source(String name) throws IOException {
    return Files.readString(KERNELS.resolve(name));
  }

  @Test
  void shouldOfferAnAlgorithmForAnyNumberOfGpus() {
    for (int ranks = 2; ranks < 40; ranks++) {
      RankTopology topology =
          new RankTopology(
              0, ranks, DeviceKind.CUDA, Collections.nCopies(ranks, 0), true, 132, 0, 90, 1);
      assertThat(topology.allMapped()).isTrue();
      assertThat(new MappedGpuFamily().supports(topology))
          .as("%d ranks", ranks)
          .isNotEqualTo(new ChannelFamily().supports(topology));
    }
  }

  @Test
  void shouldCompileAReductionOfEachType() throws IOException {
    assertThat(source("reduce.cu"))
        .contains(
            Arrays.stream(DataType.values())
                .map(type -> "FLUXCCL_REDUCE_ANY(" + type.label() + ", ")
                .toArray(String[]::new));
  }
}
