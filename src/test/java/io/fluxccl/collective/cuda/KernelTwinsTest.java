// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.channel.ChannelFamily;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Constants and names that are defined both in kernels and in Java. */
class KernelTwinsTest {
  private static final Path KERNELS = Path.of("src/main/cuda/collectives");

  private static String source(String name) throws IOException {
    return Files.readString(KERNELS.resolve(name));
  }

  @Test
  void shouldUseEqualLaunchLimitsInJavaAndCuda() throws IOException {
    assertThat(source("mapped_peers.cuh"))
        .contains("kMaxRanks = " + MappedPeers.MAX_RANKS + ";")
        .contains("kMaxBlocks = " + MappedPeers.MAX_BLOCKS + ";");
  }

  @Test
  void shouldUseEqualExpertLimitsAndFaultsInJavaAndCuda() throws IOException {
    assertThat(source("experts.cuh"))
        .contains("kMaxTokens = " + ExpertShape.MOST_TOKENS + ";")
        .contains("kMaxExperts = " + ExpertShape.MOST_EXPERTS + ";");
    String faults = source("routing.cuh");
    faults = faults.substring(faults.indexOf("enum class Fault"), faults.indexOf("};"));
    assertThat(
            faults
                .lines()
                .skip(1)
                .map(line -> line.strip().replace(",", ""))
                .filter(line -> line.matches("[A-Z]+")))
        .containsExactly(
            Arrays.stream(RouteFault.values()).map(RouteFault::name).toArray(String[]::new));
  }

  @Test
  void shouldOfferAnAlgorithmForAnyNumberOfGpus() {
    for (int ranks = 2; ranks < 40; ranks++) {
      RankTopology topology =
          new RankTopology(
              0, ranks, DeviceKind.CUDA, Collections.nCopies(ranks, 0), true, 132, 0, 90, 1);
      assertThat(topology.allMapped()).isTrue();
      assertThat(new ReduceFamily().supports(topology))
          .as("%d ranks", ranks)
          .isNotEqualTo(new ChannelFamily().supports(topology));
    }
  }

  @Test
  void shouldUseEqualOperationsAndTypesInJavaAndCuda() throws IOException {
    assertThat(source("accumulator.cuh"))
        .contains(
            Arrays.stream(ReduceOp.values())
                .map(ReduceOp::name)
                .collect(Collectors.joining(", ", "{ ", " }")));
    assertThat(source("reduce.cu"))
        .contains(
            Arrays.stream(DataType.values())
                .map(type -> "FLUXCCL_REDUCE_ANY(" + type.label() + ", ")
                .toArray(String[]::new));
  }
}
