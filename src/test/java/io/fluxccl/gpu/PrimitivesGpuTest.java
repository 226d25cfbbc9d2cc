// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.Kernel;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Primitives that kernels use, on real and emulated GPUs; primitives.cu has most checks. */
@EmulatedGpus
@RequiresGpus
class PrimitivesGpuTest {
  private static Kernel kernel(String name) {
    return TestKernels.of("primitives", name);
  }

  private static ByteBuffer bytes(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static ByteBuffer read(DeviceBuffer buffer) {
    return ByteBuffer.wrap(Bytes.of(buffer)).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static DeviceBuffer upload(GpuRank rank, ByteBuffer content) {
    DeviceBuffer buffer = rank.allocate(content.clear().remaining());
    buffer.upload(0, content);
    return buffer;
  }

  @ParameterizedTest
  @CsvSource({"warps, 3, 128", "partsOfWarps, 2, 64", "blocks, 4, 128"})
  void shouldExchangeWithinWarpsAndBlocksAndPartsOfThem(String name, int blocks, int threads)
      throws Exception {
    GpuRanks.runOne(
        rank -> assertThat(rank.count(kernel(name), blocks, threads)).isEqualTo(blocks * threads));
  }

  @Test
  void shouldCopyTilesInBulk() throws Exception {
    int tile = 256;
    int tiles = 41;
    ByteBuffer input = bytes(tile * tiles);
    for (int i = 0; i < tile * tiles / 4; i++) {
      input.putInt(i * 7);
    }
    GpuRanks.runOne(
        rank -> {
          DeviceBuffer out = rank.allocate(tile * tiles);
          rank.run(kernel("bulkCopies"), 1, 96, upload(rank, input), out, tiles, tile);
          ByteBuffer output = read(out);
          for (int i = 0; i < tile * tiles / 4; i++) {
            assertThat(output.getInt(4 * i)).as("word %d", i).isEqualTo(i * 7 + 1);
          }
        });
  }

  @Test
  void shouldSendWholeLines() throws Exception {
    GpuRanks.runOne(
        rank -> {
          Object[] args = {rank.allocate(2 * 64 * 16), 200, rank.communicator().abortFlag()};
          assertThat(rank.count(kernel("lines"), 2, 64, args)).isEqualTo(128);
        });
  }

  @Test
  void shouldConvertHalvesAsTheHostDoes() throws Exception {
    int count = 1 << 18;
    Random random = new Random(3);
    ByteBuffer from = bytes(4 * count);
    for (int i = 0; i < count; i++) {
      // Any bits, most of them in a half's range.
      int bits = random.nextInt();
      from.putInt(
          i % 4 == 0 ? bits : bits & 0x80001fff | random.nextInt(0x48000) << 13 | 0x30000000);
    }
    GpuRanks.runOne(
        rank -> {
          DeviceBuffer floats = rank.allocate(4 << 16);
          DeviceBuffer halves = rank.allocate(2 * count);
          rank.run(kernel("halves"), 2, 128, floats, upload(rank, from), halves, count);
          ByteBuffer widened = read(floats);
          for (int i = 0; i < 1 << 16; i++) {
            assertThat((Float) widened.getFloat(4 * i))
                .as("half %04x", i)
                .isEqualTo((Float) HalfFloat.fromFloat16((short) i));
          }
          ByteBuffer narrowed = read(halves);
          for (int i = 0; i < count; i++) {
            float value = from.getFloat(4 * i);
            short half = narrowed.getShort(2 * i);
            if (Float.isNaN(value)) {
              assertThat(HalfFloat.fromFloat16(half)).isNaN();
            } else {
              assertThat(half).as("half of %s", value).isEqualTo(HalfFloat.toFloat16(value));
            }
          }
        });
  }
}
