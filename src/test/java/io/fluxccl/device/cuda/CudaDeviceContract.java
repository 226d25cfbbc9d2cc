// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
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
  private static List<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .map(Thread::getName)
        .filter(name -> name.startsWith("fluxccl-completion"))
        .toList();
  }

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
      assertThatThrownBy(() -> CudaDevice.open(index))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("GPU " + index);
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
    Awaitility.await().untilAsserted(() -> assertThat(second.context().users()).isZero());
  }

  @Test
  void shouldNotLeakIfUsedAndClosedManyTimes() {
    CudaDevice watcher = CudaDevice.open(0);
    int users = watcher.context().users();
    useAndClose(10); // the driver caches resources of the first streams
    Awaitility.await().untilAsserted(() -> assertThat(watcher.context().users()).isEqualTo(users));
    long before = CudaMemoryContract.free(watcher);
    useAndClose(100);
    Awaitility.await()
        .untilAsserted(
            () -> {
              assertThat(watcher.context().users()).isEqualTo(users);
              assertThat(CudaMemoryContract.free(watcher)).isEqualTo(before);
              assertThat(threads()).isEmpty();
            });
    watcher.close();
    Awaitility.await().untilAsserted(() -> assertThat(watcher.context().users()).isZero());
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
  void shouldEndEveryFutureOfTheGpuWhenAKernelFails() throws Exception {
    try (ProcessRank child = TestJvms.start(FailingKernelProcess.class)) {
      for (String line : FailingKernelProcess.LINES) {
        assertThat(child.readLine()).isEqualTo(line);
      }
    }
  }

  @Test
  void shouldLoadWhenManyProcessesStartTogether(@TempDir Path temporary) throws Exception {
    List<ProcessRank> children = new ArrayList<>();
    try {
      for (int i = 0; i < 6; i++) {
        children.add(
            TestJvms.of(1, CountingProcess.class)
                .jvmOptions("-Djava.io.tmpdir=" + temporary)
                .startRank(0));
      }
      for (ProcessRank child : children) {
        assertThat(child.readLine()).isEqualTo(CudaDriver.count() + " in " + temporary);
      }
      try (Stream<Path> left = Files.list(temporary)) {
        assertThat(left.filter(path -> !path.getFileName().toString().startsWith("hsperf")))
            .isEmpty();
      }
    } finally {
      for (ProcessRank child : children) {
        child.close();
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
