// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class HostStreamTest {
  private final HostDevice device = HostDevice.create();
  private final HostStream stream = device.createStream("test");

  @AfterEach
  void close() {
    device.close();
  }

  private static void await(CompletableFuture<?> future) throws Exception {
    future.get(60, TimeUnit.SECONDS);
  }

  private static HostKernel kernel(HostKernel.Body body) {
    return HostKernel.of("k", body);
  }

  @Test
  void shouldRunWorkInTheOrderEnqueued() throws Exception {
    List<Integer> order = new ArrayList<>(); // unsynchronized: completed by one thread
    for (int i = 0; i < 1000; i++) {
      int number = i;
      stream.launch(kernel((thread, args) -> order.add(number)), 1, 1, KernelArgs.NONE);
    }
    await(stream.completion());
    assertThat(order).hasSize(1000).isSorted();
  }

  @Test
  void shouldCopyAndThenReleaseAValue() throws Exception {
    try (HostBuffer a = device.allocate(100_000);
        HostBuffer b = device.allocate(1000);
        PinnedBuffer flag = device.allocatePinned(64)) {
      HostMemory.putLong(b.address() + 8, 77);
      stream.copy(a, 99_992, b, 8, 8).writeValue(flag, 56, 9);
      Awaitility.await().until(() -> flag.buffer().getLongAcquire(56) == 9);
      assertThat(HostMemory.getLong(a.address() + 99_992)).isEqualTo(77);
      assertThatThrownBy(() -> stream.copy(a, 99_993, b, 0, 8)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.copy(a, 0, b, 993, 8)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.writeValue(flag, 57, 0)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.writeValue(flag, 64, 0)).isInstanceOf(InvalidUsage.class);
      flag.close();
      assertThatThrownBy(() -> stream.copy(flag, 0, a, 0, 8))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("closed");
    }
  }

  @Test
  void shouldReportAFailureOnceAndRunLaterWork() throws Exception {
    AtomicInteger ran = new AtomicInteger();
    IllegalStateException cause = new IllegalStateException("broken");
    stream.launch(
        kernel(
            (thread, args) -> {
              throw cause;
            }),
        1,
        1,
        KernelArgs.NONE);
    stream.launch(kernel((thread, args) -> ran.incrementAndGet()), 1, 1, KernelArgs.NONE);
    CompletableFuture<Void> first = stream.completion();
    CompletableFuture<Void> second = stream.completion();
    assertThatThrownBy(() -> await(first))
        .isInstanceOf(ExecutionException.class)
        .cause()
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("kernel k")
        .hasCause(cause);
    await(second);
    assertThat(ran).hasValue(1);
  }

  @Test
  void shouldReportTheTransportFailureOfAKernelAsCause() {
    TransportFailure blame = new TransportFailure(3, "memory of rank 3: gone");
    stream.launch(
        kernel(
            (thread, args) -> {
              throw blame;
            }),
        1,
        1,
        KernelArgs.NONE);
    assertThatThrownBy(() -> await(stream.completion())).hasCause(blame);
  }

  @Test
  void shouldSkipWorkAfterAFailureIfItFailsFast() throws Exception {
    AtomicInteger ran = new AtomicInteger();
    HostKernel broken =
        kernel(
            (thread, args) -> {
              throw new IllegalStateException("broken");
            });
    HostKernel counting = kernel((thread, args) -> ran.incrementAndGet());
    DeviceGraph graph =
        device.record(
            "g",
            recording -> {
              DeviceStream branch = recording.branch("b");
              branch.launch(counting, 1, 1, KernelArgs.NONE);
              recording.launch(counting, 1, 1, KernelArgs.NONE).waitFor(branch);
            });
    stream.failFast();
    HostStream branch = stream.branch("branch");
    HostStream other = device.createStream("other");
    await(stream.launch(graph).completion());
    assertThat(ran).hasValue(2);
    stream.launch(broken, 1, 1, KernelArgs.NONE);
    branch.waitFor(stream).launch(counting, 1, 1, KernelArgs.NONE);
    stream.waitFor(branch).launch(counting, 1, 1, KernelArgs.NONE).launch(graph);
    for (int i = 0; i < 2; i++) {
      for (HostStream failed : List.of(stream, branch)) {
        assertThatThrownBy(() -> await(failed.completion()))
            .hasRootCauseMessage("broken")
            .hasCauseInstanceOf(DeviceFailure.class);
      }
    }
    assertThat(ran).hasValue(2);
    // Another stream can still launch the graph.
    await(other.launch(graph).completion());
    assertThat(ran).hasValue(4);
  }

  @Test
  void shouldFailFuturesAtOnceWhenClosedUnderARunningKernel() throws Exception {
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch end = new CountDownLatch(1);
    AtomicInteger dropped = new AtomicInteger();
    stream.launch(
        kernel(
            (thread, args) -> {
              begun.countDown();
              end.await();
            }),
        1,
        1,
        KernelArgs.NONE);
    CompletableFuture<Void> running = stream.completion();
    stream.launch(kernel((thread, args) -> dropped.incrementAndGet()), 1, 1, KernelArgs.NONE);
    CompletableFuture<Void> waiting = stream.completion();
    assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();

    stream.close();

    for (CompletableFuture<Void> future : List.of(running, waiting, stream.completion())) {
      assertThatThrownBy(() -> future.get(0, TimeUnit.SECONDS)).hasCauseInstanceOf(Aborted.class);
    }
    assertThatThrownBy(() -> stream.launch(kernel((t, a) -> {}), 1, 1, KernelArgs.NONE))
        .isInstanceOf(InvalidUsage.class);
    end.countDown();
    Awaitility.await().until(((LiveHostStream) stream)::isIdle);
    assertThat(dropped).hasValue(0);
  }

  @Test
  void shouldKeepClosedMemoryUntilEnqueuedWorkIsDoneWithoutWaiting() throws Exception {
    HostBuffer buffer = device.allocate(1 << 20);
    SharedSegment segment = buffer.segment();
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch end = new CountDownLatch(1);
    stream.launch(
        kernel(
            (thread, args) -> {
              begun.countDown();
              end.await();
              HostMemory.putLong(args.get(0, HostBuffer.class).address(), 1);
            }),
        1,
        1,
        KernelArgs.of(buffer));
    buffer.slice(0, 8).close();
    buffer.close();
    buffer.close();
    assertThat(segment.users()).isEqualTo(1);
    assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
    stream.close(); // drops kernels that have not begun, not the release
    assertThat(segment.users()).isEqualTo(1);
    end.countDown();
    Awaitility.await().until(() -> segment.users() == 0);
  }

  @Test
  void shouldUnmapAtOnceWhenIdleAndNeverUnderARegistration() {
    HostBuffer buffer = device.allocate(1 << 20);
    buffer.retain();
    buffer.close();
    assertThat(buffer.segment().users()).isEqualTo(1);
    assertThatThrownBy(buffer::retain).isInstanceOf(InvalidUsage.class);
    buffer.segment().release();
    assertThat(buffer.segment().users()).isZero();
  }

  @Test
  void shouldRunEveryThreadOfEveryBlockWithBarriers() throws Exception {
    int blocks = 5;
    int threads = 7;
    int[][] seen = new int[blocks][threads];
    AtomicInteger wrong = new AtomicInteger();
    HostKernel kernel =
        kernel(
            (thread, args) -> {
              int[] mine = seen[thread.blockIdx()];
              for (int round = 1; round <= 50; round++) {
                mine[thread.threadIdx()] = round;
                if (!thread.syncThreads()) {
                  wrong.incrementAndGet();
                }
                for (int other = 0; other < thread.blockDim(); other++) {
                  if (mine[other] != round) {
                    wrong.incrementAndGet();
                  }
                }
                thread.syncThreads();
              }
            });
    for (int i = 0; i < 10; i++) {
      stream.launch(kernel, blocks, threads, KernelArgs.NONE);
    }
    await(stream.completion());
    assertThat(wrong).hasValue(0);
    for (int[] block : seen) {
      assertThat(block).containsOnly(50);
    }
  }

  @Test
  void shouldAllowThreadsToReturnEarly() throws Exception {
    AtomicInteger synced = new AtomicInteger();
    stream.launch(
        kernel(
            (thread, args) -> {
              if (thread.threadIdx() % 2 == 0 && thread.syncThreads()) {
                synced.incrementAndGet();
              }
            }),
        3,
        6,
        KernelArgs.NONE);
    await(stream.completion());
    assertThat(synced).hasValue(9);
  }

  @Test
  void shouldReleaseTheOtherThreadsIfOneThrows() throws Exception {
    Set<Integer> letOut = ConcurrentHashMap.newKeySet();
    HostKernel kernel =
        kernel(
            (thread, args) -> {
              if (thread.threadIdx() == 2) {
                throw new IllegalStateException("thread 2");
              }
              if (!thread.syncThreads()) {
                letOut.add(thread.threadIdx());
              }
            });
    for (int i = 0; i < 500; i++) {
      letOut.clear();
      stream.launch(kernel, 3, 4, KernelArgs.NONE);
      assertThatThrownBy(() -> await(stream.completion())).hasRootCauseMessage("thread 2");
      assertThat(letOut).containsExactlyInAnyOrder(0, 1, 3);
    }
  }

  @RepeatedTest(50)
  void shouldReleaseWaitingThreadsIfTheAbortFlagIsSet() throws Exception {
    try (AbortFlag abort = new AbortFlag(device);
        PinnedBuffer never = device.allocatePinned(8)) {
      AtomicInteger gaveUp = new AtomicInteger();
      CountDownLatch begun = new CountDownLatch(4);
      stream.launch(
          kernel(
              (thread, args) -> {
                begun.countDown();
                boolean waited =
                    thread.threadIdx() == 0
                        ? SpinWait.awaitAtLeast(never.deviceAddress(), 1, thread.abortAddress(), 3)
                        : thread.syncThreads();
                if (!waited) {
                  gaveUp.incrementAndGet();
                }
              }),
          1,
          4,
          KernelArgs.of(1L, abort));
      CompletableFuture<Void> done = stream.completion();
      assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
      assertThat(done).isNotDone();
      abort.set();
      await(done);
      assertThat(gaveUp).hasValue(4);
    }
  }

  @Test
  void shouldRunTheLargestBlock() throws Exception {
    AtomicInteger ran = new AtomicInteger();
    HostKernel kernel =
        kernel(
            (thread, args) -> {
              if (thread.syncThreads()) {
                ran.incrementAndGet();
              }
            });
    stream.launch(kernel, 1, HostKernel.MAX_BLOCK_DIM, KernelArgs.NONE);
    await(stream.completion());
    assertThat(ran).hasValue(HostKernel.MAX_BLOCK_DIM);
    assertThatThrownBy(() -> stream.launch(kernel, 1, 1025, KernelArgs.NONE))
        .isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> stream.launch(kernel, 0, 1, KernelArgs.NONE))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldRefuseAKernelOfAnotherDevice() {
    Kernel foreign =
        new Kernel() {
          @Override
          public DeviceKind kind() {
            return DeviceKind.CUDA;
          }

          @Override
          public String name() {
            return "cubin";
          }
        };
    assertThatThrownBy(() -> stream.launch(foreign, 1, 1, KernelArgs.NONE))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("cubin");
  }

  /** The bound: a stream dispatches a launch in less than a microsecond. */
  @Tag("timed")
  @Test
  void shouldDispatchBackToBackInWellUnderAMicrosecond() throws Exception {
    HostKernel empty = kernel((thread, args) -> {});
    long best = Long.MAX_VALUE;
    for (int batch = 0; batch < 30; batch++) {
      CountDownLatch go = new CountDownLatch(1);
      long[] nanos = new long[2];
      stream.launch(
          kernel(
              (thread, args) -> {
                go.await();
                nanos[0] = System.nanoTime();
              }),
          1,
          1,
          KernelArgs.NONE);
      for (int i = 0; i < 20_000; i++) {
        stream.launch(empty, 1, 1, KernelArgs.NONE);
      }
      stream.launch(kernel((t, a) -> nanos[1] = System.nanoTime()), 1, 1, KernelArgs.NONE);
      go.countDown();
      await(stream.completion());
      best = Math.min(best, (nanos[1] - nanos[0]) / 20_000);
    }
    System.out.println("dispatch back to back: " + best + " ns");
    assertThat(best).isLessThan(1_000);
  }
}
