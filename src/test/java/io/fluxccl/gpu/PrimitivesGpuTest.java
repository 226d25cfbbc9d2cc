// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Primitives that kernels use, on real and emulated GPUs; primitives.cu has most checks. */
@EmulatedGpus
@RequiresGpus
class PrimitivesGpuTest {
  private static final String FILE = "primitives";

  private CudaDevice device;
  private DeviceStream stream;
  private DeviceBuffer wrong;
  private DeviceBuffer done;

  @BeforeEach
  void open() {
    device = CudaDevice.open(0);
    TestKernels.prepare(device, FILE);
    stream = device.createStream("primitives");
    wrong = zeros(4);
    done = zeros(4);
  }

  @AfterEach
  void close() {
    device.close();
  }

  private void run(String kernel, int blocks, int threads, Object... args) throws Exception {
    stream.launch(TestKernels.of(FILE, kernel), blocks, threads, KernelArgs.of(args));
    stream.completion().get(30, TimeUnit.SECONDS);
  }

  private static ByteBuffer bytes(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  private DeviceBuffer zeros(int size) {
    DeviceBuffer buffer = device.allocate(size);
    buffer.upload(0, bytes(size));
    return buffer;
  }

  private static ByteBuffer read(DeviceBuffer buffer, int size) {
    ByteBuffer bytes = bytes(size);
    buffer.download(0, bytes);
    return bytes.clear();
  }

  private void assertDone(int threads) {
    assertThat(read(wrong, 4).getInt()).as("what was wrong").isZero();
    assertThat(read(done, 4).getInt()).as("threads that came to the end").isEqualTo(threads);
  }

  @Test
  void shouldExchangeWithinWarps() throws Exception {
    run("warps", 3, 128, wrong, done);
    assertDone(3 * 128);
  }

  @Test
  void shouldExchangeWithinPartsOfWarps() throws Exception {
    run("partsOfWarps", 2, 64, wrong, done);
    assertDone(128);
  }

  @Test
  void shouldMeetWithinBlocksAndPartsOfThem() throws Exception {
    run("blocks", 4, 128, wrong, done);
    assertDone(4 * 128);
  }

  @Test
  void shouldCopyTilesInBulk() throws Exception {
    int tile = 256;
    int tiles = 41;
    ByteBuffer input = bytes(tile * tiles);
    for (int i = 0; i < tile * tiles / 4; i++) {
      input.putInt(i * 7);
    }
    try (DeviceBuffer in = device.allocate(tile * tiles);
        DeviceBuffer out = device.allocate(tile * tiles)) {
      in.upload(0, input.flip());
      run("bulkCopies", 1, 96, in, out, tiles, tile);
      ByteBuffer output = read(out, tile * tiles);
      for (int i = 0; i < tile * tiles / 4; i++) {
        assertThat(output.getInt(4 * i)).as("word %d", i).isEqualTo(i * 7 + 1);
      }
    }
  }

  @Test
  void shouldSendWholeLines() throws Exception {
    try (DeviceBuffer memory = zeros(2 * 64 * 16);
        AbortFlag abort = new AbortFlag(device)) {
      run("lines", 2, 64, memory, 200, abort, wrong, done);
    }
    assertDone(128);
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
    try (DeviceBuffer floats = device.allocate(4 << 16);
        DeviceBuffer in = device.allocate(4 * count);
        DeviceBuffer halves = device.allocate(2 * count)) {
      in.upload(0, from.flip());
      run("halves", 2, 128, floats, in, halves, count);
      ByteBuffer widened = read(floats, 4 << 16);
      for (int i = 0; i < 1 << 16; i++) {
        assertThat((Float) widened.getFloat(4 * i))
            .as("half %04x", i)
            .isEqualTo((Float) HalfFloat.fromFloat16((short) i));
      }
      ByteBuffer narrowed = read(halves, 2 * count);
      for (int i = 0; i < count; i++) {
        float value = from.getFloat(4 * i);
        short half = narrowed.getShort(2 * i);
        if (Float.isNaN(value)) {
          assertThat(HalfFloat.fromFloat16(half)).isNaN();
        } else {
          assertThat(half).as("half of %s", value).isEqualTo(HalfFloat.toFloat16(value));
        }
      }
    }
  }
}
