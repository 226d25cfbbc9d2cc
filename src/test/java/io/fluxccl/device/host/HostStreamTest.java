// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.StreamContract;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class HostStreamTest extends StreamContract {
  private static final HostKernel BROKEN = throwing(new IllegalStateException("broken"));

  private final AtomicInteger ran = new AtomicInteger();
  private final HostKernel counting = kernel((thread, args) -> ran.incrementAndGet());

  HostStreamTest() {
    super(new HostTestDevice());
  }

  private static HostKernel kernel(HostKernel.Body body) {
    return HostKernel.of("k", body);
  }

  private static HostKernel throwing(RuntimeException failure) {
    return kernel(
        (thread, args) -> {
          throw failure;
        });
  }

  private static DeviceStream launch(DeviceStream on, Kernel kernel) {
    return on.launch(kernel, 1, 1, KernelArgs.NONE);
  }

  private static void assertBroken(CompletableFuture<Void> future) {
    assertThatThrownBy(() -> await(future))
        .hasCauseInstanceOf(DeviceFailure.class)
        .hasMessageContaining("kernel k")
        .hasRootCauseMessage("broken");
  }

  @Test
  void shouldReportAFailureOnceAndRunLaterWork() throws Exception {
    launch(launch(first, BROKEN), counting);
    CompletableFuture<Void> failed = first.completion();
    CompletableFuture<Void> next = first.completion();
    assertBroken(failed);
    await(next);
    assertThat(ran).hasValue(1);
  }

  @Test
  void shouldReportTheTransportFailureOfAKernelAsCause() {
    TransportFailure blame = new TransportFailure(3, "memory of rank 3: gone");
    CompletableFuture<Void> done = launch(first, throwing(blame)).completion();
    assertThatThrownBy(() -> await(done)).hasCause(blame);
  }

  @Test
  void shouldReportAFailureOnceToEachWaitingStream() throws Exception {
    DeviceStream branch = launch(first.branch("b"), BROKEN);
    assertBroken(first.waitFor(branch).completion());
    for (int i = 0; i < 3; i++) {
      branch.waitFor(first).writeValue(words, 0, i);
      await(first.waitFor(branch).completion());
    }
    assertBroken(second.waitFor(branch).completion()); // no failure of this stream yet
    assertBroken(branch.completion());
    await(second.waitFor(branch).completion());
  }

  @Test
  void shouldSkipWorkAfterAFailureIfItFailsFast() throws Exception {
    DeviceGraph graph =
        device.record(
            "g",
            recording -> {
              DeviceStream branch = launch(recording.branch("b"), counting);
              launch(recording, counting).waitFor(branch);
            });
    first.failFast();
    DeviceStream branch = first.branch("branch");
    await(first.launch(graph).completion());
    assertThat(ran).hasValue(2);
    launch(first, BROKEN);
    launch(branch.waitFor(first), counting);
    launch(first.waitFor(branch), counting).launch(graph);
    for (int i = 0; i < 2; i++) {
      assertBroken(first.completion());
      assertBroken(branch.completion());
    }
    assertThat(ran).hasValue(2);
    // Another stream can still launch the graph.
    await(second.launch(graph).completion());
    assertThat(ran).hasValue(4);
  }

  @Test
  void shouldFailFuturesAtOnceAndDropWorkWhenClosedUnderARunningKernel() {
    PinnedBuffer gate = gate();
    first.writeValue(words, 0, 1);
    waitAt(gate, first);
    CompletableFuture<Void> running = first.completion();
    CompletableFuture<Void> waiting = launch(first, counting).completion();
    CompletableFuture<Void> elsewhere = second.waitFor(first).completion();
    Awaitility.await().until(() -> word(0) == 1);

    first.close();

    for (CompletableFuture<Void> future : List.of(running, waiting, first.completion())) {
      assertThatThrownBy(() -> future.get(0, TimeUnit.SECONDS)).hasCauseInstanceOf(Aborted.class);
    }
    assertRefused(() -> launch(first, counting));
    open(gate);
    Awaitility.await().until(((HostStream.Live) first)::isIdle);
    assertThat(ran).hasValue(0);
    assertThatThrownBy(() -> await(elsewhere))
        .hasCauseInstanceOf(Aborted.class)
        .hasMessageContaining("first was closed");
  }

  @Test
  void shouldUnmapAtOnceWhenIdleAndNeverUnderARegistration() {
    HostBuffer buffer = (HostBuffer) device.allocate(1 << 20);
    buffer.retain();
    buffer.close();
    assertThat(buffer.segment().users()).isEqualTo(1);
    assertRefused(buffer::retain);
    buffer.segment().release();
    assertThat(buffer.segment().users()).isZero();
  }

  @Test
  void shouldEndTheThreadOfAStreamThatIsClosedWhileItWaits() {
    PinnedBuffer gate = hold(first);
    second.waitFor(first).writeValue(words, 0, 1);
    second.close();
    Awaitility.await().until(() -> HostTestDevice.threads(device, "second") == 0);
    open(gate);
  }

  @Test
  void shouldWakeIfTheAwaitedKernelTakesLong() throws Exception {
    // Long enough for the waiting thread to sleep: it has to be woken.
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> done = second.waitFor(first).completion();
    Awaitility.await()
        .until(
            () ->
                Thread.getAllStackTraces().keySet().stream()
                    .filter(
                        thread -> thread.getName().equals(HostTestDevice.thread(device, "second")))
                    .anyMatch(thread -> thread.getState() == Thread.State.WAITING));
    open(gate);
    await(done);
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
      first.launch(kernel, blocks, threads, KernelArgs.NONE);
    }
    await(first.completion());
    assertThat(wrong).hasValue(0);
    for (int[] block : seen) {
      assertThat(block).containsOnly(50);
    }
  }

  @Test
  void shouldAllowThreadsToReturnEarly() throws Exception {
    HostKernel kernel =
        kernel(
            (thread, args) -> {
              if (thread.threadIdx() % 2 == 0 && thread.syncThreads()) {
                ran.incrementAndGet();
              }
            });
    await(first.launch(kernel, 3, 6, KernelArgs.NONE).completion());
    assertThat(ran).hasValue(9);
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
      first.launch(kernel, 3, 4, KernelArgs.NONE);
      assertThatThrownBy(() -> await(first.completion())).hasRootCauseMessage("thread 2");
      assertThat(letOut).containsExactlyInAnyOrder(0, 1, 3);
    }
  }

  @RepeatedTest(50)
  void shouldReleaseWaitingThreadsIfTheAbortFlagIsSet() throws Exception {
    try (AbortFlag abort = new AbortFlag(device)) {
      CountDownLatch begun = new CountDownLatch(4);
      HostKernel kernel =
          kernel(
              (thread, args) -> {
                begun.countDown();
                boolean waited =
                    thread.threadIdx() == 0
                        ? SpinWait.awaitAtLeast(words.deviceAddress(), 1, thread.abortAddress(), 3)
                        : thread.syncThreads();
                if (!waited) {
                  ran.incrementAndGet();
                }
              });
      CompletableFuture<Void> done =
          first.launch(kernel, 1, 4, KernelArgs.of(1L, abort)).completion();
      assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
      assertThat(done).isNotDone();
      abort.set();
      await(done);
      assertThat(ran).hasValue(4);
    }
  }

  @Test
  void shouldRunTheLargestBlock() throws Exception {
    HostKernel kernel =
        kernel(
            (thread, args) -> {
              if (thread.syncThreads()) {
                ran.incrementAndGet();
              }
            });
    await(first.launch(kernel, 1, HostKernel.MAX_BLOCK_DIM, KernelArgs.NONE).completion());
    assertThat(ran).hasValue(HostKernel.MAX_BLOCK_DIM);
    assertRefused(() -> first.launch(kernel, 1, 1025, KernelArgs.NONE));
    assertRefused(() -> first.launch(kernel, 0, 1, KernelArgs.NONE));
  }

  @Test
  void shouldRefuseAKernelOfAnotherDevice() {
    record Cubin(DeviceKind kind, String name) implements Kernel {}
    assertRefused(() -> launch(first, new Cubin(DeviceKind.CUDA, "cubin")), "cubin");
  }

  /** The bound: a stream dispatches a launch in less than a microsecond. */
  @Tag("timed")
  @Test
  void shouldDispatchBackToBackInWellUnderAMicrosecond() throws Exception {
    HostKernel empty = kernel((thread, args) -> {});
    long best = Long.MAX_VALUE;
    for (int batch = 0; batch < 30; batch++) {
      PinnedBuffer gate = hold(first);
      long[] nanos = new long[2];
      launch(first, kernel((thread, args) -> nanos[0] = System.nanoTime()));
      for (int i = 0; i < 20_000; i++) {
        launch(first, empty);
      }
      launch(first, kernel((thread, args) -> nanos[1] = System.nanoTime()));
      open(gate);
      await(first.completion());
      best = Math.min(best, (nanos[1] - nanos[0]) / 20_000);
    }
    System.out.println("dispatch back to back: " + best + " ns");
    assertThat(best).isLessThan(1_000);
  }
}
