// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.function.Function;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A kernel that waits for an event that never occurs ends soon after an abort. Its stream, and the
 * next communicator of the JVM, then work.
 */
class AbortGpuTest {
  private static final Duration SOON = Duration.ofMillis(100);
  private static final int GAVE_UP = 2;
  private static final int MOST_THREADS = 4096;

  /** Each way in which a kernel waits. */
  enum Wait {
    SIGNAL_OF_A_KERNEL("abortSignal", 1, 1, rank -> List.of(link(rank, 64).semaphore())),
    SIGNAL_OF_A_HOST("abortHostSignal", 1, 1, rank -> List.of(hostSemaphore(rank))),
    LL8_PACKETS("abortPacketsLl8", 1, 256, Wait::packets),
    LL16_PACKETS("abortPacketsLl16", 1, 256, Wait::packets),
    BARRIER_OF_A_GRID(
        "abortGrid", 8, 128, rank -> List.of(rank.allocate(128), rank.communicator().abortFlag())),
    // The proxy service is not started, so no thread executes the kernel's triggers.
    FLUSH("abortFlush", 1, 1, rank -> List.of(link(rank, 64).proxied().channel())),
    PLACE_IN_THE_RING("abortPush", 1, 1, Wait::ring),
    TRIGGER_TO_BE_HANDLED("abortSync", 1, 32, Wait::ring);

    private final String kernel;
    private final int blocks;
    private final int threads;
    private final Function<GpuRank, List<Object>> arguments;

    Wait(String kernel, int blocks, int threads, Function<GpuRank, List<Object>> arguments) {
      this.kernel = kernel;
      this.blocks = blocks;
      this.threads = threads;
      this.arguments = arguments;
    }

    private static GpuLink link(GpuRank rank, long bytes) {
      return GpuLink.over(rank, Transport.CUDA_IPC, bytes);
    }

    private static Host2DeviceSemaphore hostSemaphore(GpuRank rank) {
      Host2DeviceSemaphore semaphore =
          rank.own(new Host2DeviceSemaphore(rank.communicator(), link(rank, 64).connection()));
      rank.communicator().setup().join();
      return semaphore;
    }

    private static List<Object> packets(GpuRank rank) {
      return List.of(link(rank, 8192).smChannel(rank.allocate(4096)), 4096L, 9);
    }

    private static List<Object> ring(GpuRank rank) {
      Fifo fifo = rank.own(new Fifo(rank.device(), 64));
      return List.of(fifo.deviceHandle(rank.communicator().abortFlag()));
    }
  }

  /** Returns the time from the abort until the kernels of all ranks were done. */
  private static Duration abortWhileWaiting(int nRanks, int gpus, Wait wait) throws Exception {
    CyclicBarrier allWait = new CyclicBarrier(nRanks);
    LongAccumulator slowest = new LongAccumulator(Math::max, 0);
    GpuRanks.run(nRanks, gpus, rank -> slowest.accumulate(abortWhileWaiting(rank, wait, allWait)));
    return Duration.ofNanos(slowest.get());
  }

  /** Returns the nanoseconds from the abort until the kernel of the rank was done. */
  private static long abortWhileWaiting(GpuRank rank, Wait wait, CyclicBarrier allWait)
      throws Exception {
    TestKernels.prepare(rank.device(), "abort", "figures");
    DeviceBuffer results = rank.allocate((long) MOST_THREADS * Integer.BYTES);
    PinnedBuffer reached = rank.own(rank.device().allocatePinned(64));
    List<Object> arguments = new ArrayList<>(wait.arguments.apply(rank));
    arguments.add(results);
    rank.barrier();
    // The stream gets here just before it starts the kernel.
    rank.stream().writeValue(reached, 0, 1);
    Kernel kernel = TestKernels.of("abort", wait.kernel);
    rank.launch(kernel, wait.blocks, wait.threads, arguments.toArray());
    Awaitility.await()
        .atMost(GpuRank.PATIENCE)
        .pollInterval(Duration.ofMillis(1))
        .until(() -> reached.buffer().getLongVolatile(0) == 1);
    // After all kernels wait, one rank aborts, which aborts the others. A bootstrap barrier would
    // fail if the abort reached a rank that is still in it.
    allWait.await(GpuRank.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    long aborted = System.nanoTime();
    if (rank.rank() == 0) {
      rank.communicator().abort(new Aborted(0, "the test's wish"));
    }
    rank.stream()
        .completion()
        .handle((done, failure) -> null)
        .get(GpuRank.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    long nanos = System.nanoTime() - aborted;
    assertThat(rank.communicator().failed()).succeedsWithin(GpuRank.PATIENCE);
    for (int thread = 0; thread < wait.blocks * wait.threads; thread++) {
      assertThat(GpuRank.readInt(results, (long) thread * Integer.BYTES))
          .as("how the wait of thread %d ended", thread)
          .isEqualTo(GAVE_UP);
    }
    rank.run(TestKernels.of("figures", "nothing"), 1, 32);
    return nanos;
  }

  /** The bound: kernels on GPUs leave their waits within 100 ms of an abort. */
  @Tag("timed")
  @RequiresGpus(2)
  @ParameterizedTest
  @EnumSource(Wait.class)
  void shouldReleaseKernelsWithin100Milliseconds(Wait wait) throws Exception {
    assertThat(abortWhileWaiting(2, 2, wait)).isLessThan(SOON);
  }

  private static void holdsOn(int gpus, Wait wait) throws Exception {
    abortWhileWaiting(2, gpus, wait);
    GpuRanks.run(2, gpus, Scenario.KERNELS_COUNT_SIGNALS_OF_KERNELS);
  }

  @EmulatedGpus
  @RequiresGpus
  @ParameterizedTest
  @EnumSource(Wait.class)
  void shouldReleaseKernelsOnOneGpu(Wait wait) throws Exception {
    holdsOn(1, wait);
  }

  @EmulatedGpus
  @RequiresGpus(2)
  @ParameterizedTest
  @EnumSource(Wait.class)
  void shouldReleaseKernelsOnTwoGpus(Wait wait) throws Exception {
    holdsOn(2, wait);
  }

  @EmulatedGpus
  @RequiresGpus(2)
  @RepeatedTest(10)
  void shouldReleaseKernelsOverAndOver() throws Exception {
    abortWhileWaiting(2, 2, Wait.SIGNAL_OF_A_KERNEL);
  }

  @EmulatedGpus
  @RequiresGpus(4)
  @RepeatedTest(3)
  void shouldReleaseKernelsOnFourGpus() throws Exception {
    abortWhileWaiting(4, 4, Wait.BARRIER_OF_A_GRID);
  }
}
