package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What every rank must decide alike, without a GPU. */
class GpuChoicesTest {
  private static final Path KERNELS = Path.of("src/main/cuda/collectives");

  @ParameterizedTest
  @CsvSource({
    "1,ONE_SHOT",
    "16384,ONE_SHOT",
    "16385,TWO_PHASES",
    "1048576,TWO_PHASES",
    "1048577,DIRECT",
    "4294967296,DIRECT"
  })
  void shouldChooseTheKernelBySize(long bytes, MappedKernel expected) {
    assertThat(MappedKernel.forSize(bytes)).isEqualTo(expected);
  }

  @ParameterizedTest
  @CsvSource({"132,1,64", "132,2,33", "132,4,16", "20,1,10", "20,4,2", "4,8,1", "1000,1,64"})
  void shouldKeepTheBlocksOfAllRanksOnOneGpuAtOnce(int multiprocessors, int sharing, int blocks) {
    assertThat(GpuGrid.of(multiprocessors, sharing).maxBlocks()).isEqualTo(blocks);
  }

  @ParameterizedTest
  @CsvSource({"1,1,1", "1024,2,4", "16384,8,64", "16384,16,64"})
  void shouldGiveEveryRowOfPacketsABlock(long bytes, int nRanks, int blocks) {
    GpuGrid grid = GpuGrid.of(132, 1);
    assertThat(MappedKernel.ONE_SHOT.blocks(bytes, nRanks, grid)).isEqualTo(blocks);
    assertThat(MappedKernel.ONE_SHOT.threads(nRanks))
        .isEqualTo(32 * nRanks)
        .isLessThanOrEqualTo(GpuGrid.MAX_THREADS);
  }

  @Test
  void shouldNeverLaunchMoreBlocksThanThereMayBe() {
    GpuGrid small = GpuGrid.of(8, 2);
    for (MappedKernel kernel : MappedKernel.values()) {
      for (long bytes = 1; bytes < 1L << 40; bytes *= 3) {
        assertThat(kernel.blocks(bytes, 3, small)).isBetween(1, small.maxBlocks());
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 7, 8, 16})
  void shouldHaveRoomForTheChunkOfEveryRun(int nRanks) {
    for (long size : new long[] {16 << 10, (16 << 10) + 8, 100_003, 1 << 20, 64 << 20}) {
      MappedState state = MappedState.forBuffer(size, nRanks);
      for (DataType type : DataType.values()) {
        long most = Math.min(size, MappedKernel.PACKET_LIMIT) / type.size();
        for (long count = most; count > 0 && count > most - 200; count--) {
          if (MappedKernel.forSize(count * type.size()) == MappedKernel.TWO_PHASES) {
            long packets = Partition.chunkElements(count, type, nRanks) * type.size() / 8;
            assertThat(packets).isLessThanOrEqualTo(state.chunkPackets());
          } else {
            long packets = (count * type.size() + 7) / 8;
            assertThat(packets).isLessThanOrEqualTo(state.oneShotPackets());
          }
        }
      }
    }
  }

  @Test
  void shouldAgreeWithTheKernelsOnNumbers() throws IOException {
    String ranks = Files.readString(KERNELS.resolve("mapped_ranks.cuh"));
    assertThat(ranks)
        .contains("kMaxRanks = " + MappedState.MAX_RANKS + ";")
        .contains("kMaxBlocks = " + GpuGrid.MAX_BLOCKS + ";")
        .contains("FLUXCCL_ASSERT_SIZE(MappedRanks, " + MappedState.HANDLE_LENGTH + ");");
    assertThat(Files.readString(KERNELS.resolve("all_reduce.cu")))
        .contains("kMaxThreads = " + GpuGrid.MAX_THREADS + ";")
        .contains(
            Arrays.stream(DataType.values())
                .filter(type -> !type.name().startsWith("FLOAT8"))
                .map(type -> "FLUXCCL_ALL_REDUCE(" + type.label() + ", ")
                .toArray(String[]::new));
    assertThat(Files.readString(KERNELS.resolve("accumulator.cuh")))
        .contains(
            Arrays.stream(ReduceOp.values())
                .map(ReduceOp::name)
                .collect(Collectors.joining(", ", "{ ", " }")));
  }

  @Test
  void shouldCountTheRanksOfAProcessOnEachGpu() {
    DeviceCard first = new DeviceCard(DeviceKind.CUDA, 132, 90, "0000:01:00.0");
    DeviceCard second = new DeviceCard(DeviceKind.CUDA, 132, 90, "0000:02:00.0");
    List<LocalBootstrap> ranks = LocalBootstrap.group(3);
    try {
      List<DeviceCard> cards = List.of(first, second, first);
      assertThat(GpuGrid.of(cards, ranks.get(0)).maxBlocks()).isEqualTo(33);
      assertThat(GpuGrid.of(List.of(first, first, first), ranks.get(1)).maxBlocks()).isEqualTo(22);
      // They are one process, in which kernels run side by side.
      assertThat(GpuGrid.remark(cards, ranks.get(0))).isEmpty();
    } finally {
      ranks.forEach(LocalBootstrap::close);
    }
  }

  @Test
  void shouldReadTheCardThatItWrites() {
    DeviceCard card = new DeviceCard(DeviceKind.CUDA, 132, 90, "0000:3b:00.0");
    assertThat(DeviceCard.decode(card.encode(), 1)).isEqualTo(card);
    DeviceCard host = new DeviceCard(DeviceKind.HOST, 0, 0, "");
    assertThat(DeviceCard.decode(host.encode(), 1)).isEqualTo(host);
  }

  @Test
  void shouldTrustNoCard() {
    byte[] good = new DeviceCard(DeviceKind.CUDA, 132, 90, "0000:3b:00.0").encode();
    byte[] version = good.clone();
    version[0] = 9;
    byte[] kind = good.clone();
    kind[1] = -1;
    byte[] blocks = good.clone();
    blocks[5] = -1;
    byte[] capability = good.clone();
    capability[9] = -1;
    for (byte[] bad :
        new byte[][] {{}, {1, 1, 1}, version, kind, blocks, capability, new byte[500]}) {
      assertThatThrownBy(() -> DeviceCard.decode(bad, 3))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 3");
    }
  }

  @Test
  void shouldRefuseABufferThatElementsCanNotBeLoadedFrom() {
    GpuKernels.checkAlignment(16 | 8, DataType.FLOAT64);
    assertThatThrownBy(() -> GpuKernels.checkAlignment(16 | 4, DataType.FLOAT64))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("8 bytes");
  }
}
