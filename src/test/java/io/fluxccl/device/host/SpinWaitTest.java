// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class SpinWaitTest {
  private final HostDevice device = HostDevice.create();

  @AfterEach
  void close() {
    device.close();
  }

  @Test
  void shouldWaitAcrossTheWrapOfACounter() {
    try (PinnedBuffer word = device.allocatePinned(8)) {
      word.buffer().putLongRelease(0, Long.MIN_VALUE);
      assertThat(SpinWait.awaitAtLeast(word.deviceAddress(), Long.MAX_VALUE, 0, 1)).isTrue();
    }
  }

  @Test
  void shouldRecordItsPeerAndStopIfTheAbortFlagIsSet() throws Exception {
    try (PinnedBuffer word = device.allocatePinned(8);
        AbortFlag abort = new AbortFlag(device)) {
      CompletableFuture<Boolean> waiter =
          CompletableFuture.supplyAsync(
              () -> SpinWait.awaitAtLeast(word.deviceAddress(), 1, abort.deviceAddress(), 5));
      Awaitility.await().until(() -> abort.waitingFor() == 5);
      abort.set();
      assertThat(waiter.get(60, TimeUnit.SECONDS)).isFalse();
    }
  }

  @Test
  void shouldStopAfterFewStepsIfTheAbortFlagIsAlreadySet() {
    try (AbortFlag abort = new AbortFlag(device)) {
      abort.set();
      int steps = 0;
      int step = 0;
      while (step >= 0) {
        step = SpinWait.step(step, abort.deviceAddress(), 0);
        steps++;
      }
      assertThat(steps).isLessThan(10_000);
    }
  }

  /** The bound: a wait of a second takes at most 0.7 s of processor time, as it sleeps. */
  @Tag("timed")
  @Test
  void shouldSleepAndStillSeeTheValueIfTheWaitIsLong() {
    try (PinnedBuffer word = device.allocatePinned(8)) {
      AtomicLong cpuNanos = new AtomicLong(-1);
      Thread waiter =
          new Thread(
              () -> {
                SpinWait.awaitAtLeast(word.deviceAddress(), 1, 0, 1);
                cpuNanos.set(ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime());
              });
      waiter.start();
      long until = System.nanoTime() + Duration.ofMillis(1000).toNanos();
      Awaitility.await().until(() -> System.nanoTime() > until);
      word.buffer().putLongRelease(0, 1);
      Awaitility.await().until(() -> cpuNanos.get() >= 0);
      assertThat(cpuNanos.get()).isLessThan(Duration.ofMillis(700).toNanos());
    }
  }

  @Test
  void shouldBeCrowdedIfMoreThreadsThanCoresMayWait() {
    assertRefused(() -> SpinPolicy.setProcessesOnHost(0));
    int cores = Runtime.getRuntime().availableProcessors();
    SpinPolicy.setProcessesOnHost(cores + 1);
    assertThat(SpinPolicy.isCrowded()).isTrue();
    SpinPolicy.setProcessesOnHost(1);
    // Threads of earlier tests may not have ended yet.
    Awaitility.await().until(() -> !SpinPolicy.isCrowded());
  }

  /** The bound: a barrier of processes takes less than 200 us. */
  @Tag("multiprocess")
  @Tag("timed")
  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void shouldCrossABarrierOfProcessesQuickly(int ranks) throws Exception {
    SharedSegment segment = SharedSegment.create(FlagBarrier.length(ranks));
    String name = HexFormat.of().formatHex(segment.name().encode());
    try (ProcessRanks children =
        TestJvms.of(ranks, FlagBarrier.class, name, "" + ranks, "30", "500").start()) {
      double nanos = 0;
      for (ProcessRank child : children.all()) {
        nanos = Math.max(nanos, Double.parseDouble(child.readLine()));
      }
      System.out.printf("barrier of %d processes: %.2f us%n", ranks, nanos / 1000);
      assertThat(nanos).isLessThan(200_000); // a shared machine is slow at times
    } finally {
      segment.release();
    }
  }
}
