// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.FakeMemory;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranks that are repeatedly set up and closed in one JVM leak no memory. */
class SetUpGpuTest {
  private static final int ROUNDS = Integer.getInteger("fluxccl.setup.rounds", 100);
  private static final int WARM_UP = 10;

  // Allowance for memory that the driver and the JVM keep; a leak of any arena would be far larger.
  private static final long DEVICE_SLACK = 4L << 20;
  private static final long PINNED_SLACK = 4L << 20;

  private static void setUp(int gpus, int round) throws Exception {
    GpuRanks.run(
        2,
        gpus,
        rank -> {
          GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 8L << 20);
          link.smChannel(rank.allocate(4096));
          GpuLink small = GpuLink.over(rank, Transport.CUDA_IPC, 1000);
          small.proxied().start();
          if (round % 10 == 0) {
            GpuLink.over(rank, Transport.ETHERNET, 1 << 20).proxied().start();
          }
          Scenario.SM_CHANNELS_READ_AND_WRITE_WORDS.run(rank);
        });
  }

  /** Bytes of this process that are mapped for the driver: its pinned memory among them. */
  private static long pinned() throws IOException {
    long bytes = 0;
    for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
      if (line.contains("/dev/zero") || line.contains("/dev/nvidia")) {
        String[] range = line.substring(0, line.indexOf(' ')).split("-");
        bytes += Long.parseUnsignedLong(range[1], 16) - Long.parseUnsignedLong(range[0], 16);
      }
    }
    return bytes;
  }

  private static void leavesNothing(int gpus) throws Exception {
    List<CudaDevice> devices =
        java.util.stream.IntStream.range(0, gpus).mapToObj(CudaDevice::open).toList();
    try {
      for (int round = 0; round < WARM_UP; round++) {
        setUp(gpus, round);
      }
      List<Long> freeBefore = devices.stream().map(FakeMemory::free).toList();
      long pinnedBefore = pinned();
      for (int round = 0; round < ROUNDS; round++) {
        setUp(gpus, round);
      }
      // Released memory may be freed a little later, on another thread.
      Awaitility.await()
          .atMost(Duration.ofSeconds(60))
          .untilAsserted(
              () -> {
                for (int gpu = 0; gpu < gpus; gpu++) {
                  assertThat(freeBefore.get(gpu) - FakeMemory.free(devices.get(gpu)))
                      .as("bytes of GPU %d lost in %d rounds", gpu, ROUNDS)
                      .isLessThanOrEqualTo(DEVICE_SLACK);
                }
                assertThat(pinned() - pinnedBefore)
                    .as("bytes of pinned memory lost in %d rounds", ROUNDS)
                    .isLessThanOrEqualTo(PINNED_SLACK);
              });
    } finally {
      devices.forEach(CudaDevice::close);
    }
  }

  @Test
  @RequiresGpus
  @Timeout(120)
  void shouldLeakNoMemoryOnOneGpu() throws Exception {
    leavesNothing(1);
  }

  @Test
  @RequiresGpus(2)
  @Timeout(120)
  void shouldLeakNoMemoryOnTwoGpus() throws Exception {
    leavesNothing(2);
  }
}
