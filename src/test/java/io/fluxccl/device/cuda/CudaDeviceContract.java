// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Devices, on a GPU and on the fake driver. */
@Timeout(120)
abstract class CudaDeviceContract {
  private static final List<Boolean> SIX_FAILURES = Collections.nCopies(6, true);

  @Test
  void shouldDescribeTheGpu() {
    try (CudaDevice device = CudaDevice.open(0)) {
      assertThat(device.kind()).isEqualTo(DeviceKind.CUDA);
      assertThat(device.index()).isZero();
      assertThat(device.pciBusId()).matches("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
      assertThat(device.multiprocessors()).isPositive();
      assertThat(device.computeCapability()).isBetween(70, 200);
      assertThat(device.numaNode()).isGreaterThanOrEqualTo(-1);
      assertThat(device.canAccessPeer(0)).isTrue();
      assertThat(device.description()).contains(device.pciBusId()).contains("MiB");
      assertThat(device).hasToString("CudaDevice(index=0, " + device.pciBusId() + ")");
    }
  }

  @Test
  void shouldRefuseGpusThatAreNotThere() {
    for (int index : new int[] {-1, CudaDriver.count()}) {
      assertRefused(() -> CudaDevice.open(index), "GPU " + index);
    }
  }

  @Test
  void shouldShareTheContextAmongDevicesOfOneGpu() {
    CudaDevice first = CudaDevice.open(0);
    CudaDevice second = CudaDevice.open(0);
    assertThat(first.context()).isSameAs(second.context());
    first.close();
    first.close();
    try (CudaBuffer buffer = second.allocate(64)) {
      CudaStream stream = second.createStream("s").writeValue(buffer, 0, 1);
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
    }
    second.close();
    Awaitility.await().until(() -> second.context().users() == 0);
  }

  @Test
  void shouldNotLeakIfUsedAndClosedManyTimes() {
    CudaDevice watcher = CudaDevice.open(0);
    int users = watcher.context().users();
    useAndClose(10); // the driver caches resources of the first streams
    Awaitility.await().until(() -> watcher.context().users() == users);
    long before = CudaMemoryContract.free(watcher);
    useAndClose(100);
    Awaitility.await()
        .untilAsserted(
            () -> {
              assertThat(watcher.context().users()).isEqualTo(users);
              assertThat(CudaMemoryContract.free(watcher)).isEqualTo(before);
              assertThat(Thread.getAllStackTraces().keySet())
                  .noneMatch(thread -> thread.getName().startsWith("fluxccl-completion"));
            });
    watcher.close();
    Awaitility.await().until(() -> watcher.context().users() == 0);
  }

  private static void useAndClose(int rounds) {
    for (int round = 0; round < rounds; round++) {
      CudaDevice device = CudaDevice.open(0);
      StreamKernels.load(device);
      CudaStream stream = device.createStream("s");
      CudaBuffer small = device.allocate(64);
      CudaBuffer large = device.allocate(3 << 20);
      CudaPinnedBuffer pinned = device.allocatePinned(100_000);
      stream.launch(StreamKernels.FILL, 1, 32, KernelArgs.of(large, large.size(), 1));
      var done = stream.completion();
      if (round % 2 == 0) {
        assertThat(done).succeedsWithin(60, TimeUnit.SECONDS);
        stream.close();
      }
      small.close();
      large.close();
      pinned.close();
      device.close();
    }
  }

  @Test
  void shouldEndEveryFutureOfTheGpuWhenAKernelFails() {
    try (ProcessRank child = TestJvms.start(FailingKernelProcess.class)) {
      assertThat(child.readLine())
          .isEqualTo("own, other, launch, completion, health, allocation: " + SIX_FAILURES);
      assertThat(child.readLine()).isEqualTo("action after the work ran");
      assertThat(child.readLine()).isEqualTo("closed");
    }
  }

  @Test
  void shouldLoadWhenManyProcessesStartTogether(@TempDir Path temporary) throws Exception {
    try (ProcessRanks children =
        TestJvms.of(6, CountingProcess.class).jvmOptions("-Djava.io.tmpdir=" + temporary).start()) {
      for (ProcessRank child : children.all()) {
        assertThat(child.readLine()).isEqualTo(CudaDriver.count() + " in " + temporary);
      }
      try (Stream<Path> left = Files.list(temporary)) {
        assertThat(left.filter(path -> !path.getFileName().toString().startsWith("hsperf")))
            .isEmpty();
      }
    }
  }

  /** Counts the GPUs. */
  static final class CountingProcess {
    private CountingProcess() {}

    public static void main(String[] args) {
      System.out.println(CudaDriver.count() + " in " + System.getProperty("java.io.tmpdir"));
    }
  }
}
