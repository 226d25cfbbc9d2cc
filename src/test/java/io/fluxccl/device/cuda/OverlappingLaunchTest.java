// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Launches that may start early still execute their work in order. */
@EmulatedGpus
@RequiresGpus(1)
@Timeout(60)
class OverlappingLaunchTest {
  private static final int COUNT = 5000;
  private static final int BLOCKS = 8;
  private static final int THREADS = 128;

  private final CudaDevice device = CudaDevice.open(0);
  private final DeviceStream stream = device.createStream("overlapping");
  private final DeviceBuffer words = device.allocate(COUNT * 4L);
  private final DeviceBuffer copy = device.allocate(COUNT * 4L);
  private final CudaKernel plain = (CudaKernel) TestKernels.of("overlap", "tripleInTurn");
  private final CudaKernel overlapping = plain.overlapping();
  private final int[] expected = new int[COUNT];

  @BeforeEach
  void zero() {
    words.upload(0, new byte[COUNT * 4]);
  }

  @AfterEach
  void close() {
    device.close();
  }

  private void launch(DeviceStream on, CudaKernel kernel, int number) {
    on.launch(kernel, BLOCKS, THREADS, KernelArgs.of(words, COUNT, number));
  }

  private void expect(int number) {
    for (int i = 0; i < COUNT; i++) {
      expected[i] = 3 * expected[i] + number + i;
    }
  }

  private void check(DeviceBuffer result) throws Exception {
    stream.completion().get(30, TimeUnit.SECONDS);
    ByteBuffer bytes = ByteBuffer.allocateDirect(COUNT * 4).order(ByteOrder.LITTLE_ENDIAN);
    result.download(0, bytes);
    for (int i = 0; i < COUNT; i++) {
      assertThat(bytes.getInt(i * 4)).as("word %d", i).isEqualTo(expected[i]);
    }
  }

  @Test
  void shouldShareOneKernelWithItsOverlappingVariant() {
    assertThat(plain.overlapping()).isSameAs(overlapping);
    assertThat(overlapping.overlapping()).isSameAs(overlapping);
    assertThat(overlapping.name()).isEqualTo(plain.name());
    CudaKernel withMemory = overlapping.withSharedMemory(1024);
    assertThat(withMemory.overlapping()).isSameAs(withMemory);
  }

  @Test
  void shouldKeepTheOrderOfLaunchesAndCopies() throws Exception {
    for (int i = 0; i < 40; i++) {
      launch(stream, i % 7 == 3 ? plain : overlapping, i);
      expect(i);
      if (i % 5 == 2) {
        stream.completion(); // which is work on the stream, too
      }
      if (i % 10 == 9) {
        stream.copy(copy, 0, words, 0, COUNT * 4L);
        stream.copy(words, 0, copy, 0, COUNT * 4L);
      }
    }
    check(copy);
  }

  @Test
  void shouldKeepTheOrderInGraphs() throws Exception {
    try (DeviceGraph graph =
        device.record(
            "overlapping",
            on -> {
              for (int i = 0; i < 20; i++) {
                launch(on, i == 11 ? plain : overlapping, i);
              }
            })) {
      for (int round = 0; round < 3; round++) {
        stream.launch(graph);
        launch(stream, overlapping, 100);
        for (int i = 0; i < 20; i++) {
          expect(i);
        }
        expect(100);
      }
      check(words);
    }
  }
}
