// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Work of streams and their waits for each other, on any device. */
@Timeout(120)
public abstract class StreamContract extends StreamScenario {
  protected StreamContract(TestDevice kind) {
    super(kind);
  }

  @Test
  void shouldRunWorkInTheOrderEnqueued() throws Exception {
    try (DeviceBuffer a = device.allocate(100_000);
        DeviceBuffer b = device.allocate(100_000)) {
      PinnedBuffer gate = hold(first);
      for (int i = 1; i <= 20; i++) {
        fill(first, a, i);
        if (i == 7) {
          first.copy(b, 50_000, a, 0, 50_000);
        }
      }
      open(gate);
      await(first.completion());
      assertThat(bytesOf(a)).containsOnly(20);
      assertThat(bytesOf(b.slice(0, 50_000))).containsOnly(0);
      assertThat(bytesOf(b.slice(50_000, 50_000))).containsOnly(7);
    }
  }

  @Test
  void shouldStoreValuesAfterEarlierWork() throws Exception {
    try (DeviceBuffer flags = device.allocate(256)) {
      PinnedBuffer gate = hold(first);
      first.writeValue(flags, 128, 0x0102030405060708L).writeValue(words, 8, 9);
      CompletableFuture<Void> done = first.completion();
      await(second.launch(kind.store, 1, 1, KernelArgs.of(words, 5L)).completion());
      assertThat(List.of(word(0), word(1))).containsExactly(5L, 0L);
      assertThat(done).isNotDone();
      open(gate);
      await(done);
      assertThat(word(1)).isEqualTo(9);
      assertThat(longOf(flags.slice(128, 8))).isEqualTo(0x0102030405060708L);
      assertThat(longOf(flags.slice(120, 8)) | longOf(flags.slice(136, 8))).isZero();
    }
  }

  @Test
  void shouldCopyThroughPinnedMemoryBothWays() throws Exception {
    try (DeviceBuffer middle = device.allocate(3 << 20);
        PinnedBuffer from = device.allocatePinned(1 << 20);
        PinnedBuffer to = device.allocatePinned(1 << 20)) {
      int size = (1 << 20) - 1;
      for (int i = 0; i <= size; i++) {
        from.buffer().putByte(i, (byte) (i * 31));
      }
      first
          .copy(middle, 1_000_003, from, 1, size)
          .copy(to, 0, middle, 1_000_003, size)
          .copy(to, 0, middle, 0, 0);
      await(first.completion());
      for (int i = 0; i < size; i++) {
        assertThat(to.buffer().getByte(i)).isEqualTo((byte) ((i + 1) * 31));
      }
      assertThat(to.buffer().getByte(size)).isZero();
    }
  }

  /** More completions than a GPU has events for completions that are followed by more work. */
  @Test
  void shouldCompleteInOrderHoweverManyAreOutstanding() throws Exception {
    List<Integer> order = Collections.synchronizedList(new ArrayList<>());
    for (int round = 0; round < 2; round++) {
      order.clear();
      List<CompletableFuture<Void>> done = new ArrayList<>();
      try (DeviceBuffer counter = device.allocate(8)) {
        PinnedBuffer gate = hold(first);
        for (int i = 0; i < 600; i++) {
          int number = i;
          add(first, counter);
          done.add(first.completion().thenRun(() -> order.add(number)));
        }
        Awaitility.await()
            .during(Duration.ofMillis(5))
            .untilAsserted(() -> assertThat(order).isEmpty());
        open(gate);
        for (CompletableFuture<Void> each : done) {
          await(each);
        }
        assertThat(order).hasSize(600).isSorted();
        assertThat(longOf(counter)).isEqualTo(600);
      }
    }
  }

  @Test
  void shouldTakeWorkFromManyThreads() throws Exception {
    List<CompletableFuture<Void>> threads = new ArrayList<>();
    for (int t = 0; t < 8; t++) {
      int thread = t;
      threads.add(
          CompletableFuture.runAsync(
              () -> {
                for (int i = 1; i <= 100; i++) {
                  first.writeValue(words, 8 * thread, i).completion().join();
                  assertThat(word(thread)).isEqualTo(i);
                }
              }));
    }
    await(CompletableFuture.allOf(threads.toArray(CompletableFuture[]::new)));
  }

  @Test
  void shouldRunActionsAfterTheWorkOfAllStreams() throws Exception {
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(1); // there was none
    PinnedBuffer firstGate = hold(first);
    PinnedBuffer secondGate = hold(second);
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    open(firstGate);
    await(first.completion());
    assertThat(runs).hasValue(1);
    open(secondGate);
    Awaitility.await().until(() -> runs.get() == 2);
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    Awaitility.await().until(() -> runs.get() == 3);
  }

  /** A thread that completes futures may be late, and the action may close the stream. */
  @Test
  void shouldRunActionsAfterTheFuturesOfDoneWork() throws Exception {
    CompletableFuture<Void> isBusy = new CompletableFuture<>();
    CompletableFuture<Void> goesOn = new CompletableFuture<>();
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> busy =
        first
            .completion()
            .thenRun(
                () -> {
                  isBusy.complete(null);
                  goesOn.join();
                });
    open(gate);
    await(isBusy);
    CompletableFuture<Void> done = second.writeValue(words, 0, 1).completion();
    Awaitility.await().until(() -> word(0) == 1);
    Awaitility.await().until(() -> kind.isIdle(second)); // it has noted the completion
    device.whenEnqueuedWorkIsDone(second::close);
    goesOn.complete(null);
    await(done);
    await(busy);
    Awaitility.await().until(() -> ((AbstractStream<?, ?>) second).isClosed());
  }

  @Test
  void shouldKeepMemoryForTheWorkEnqueuedBeforeItsClose() throws Exception {
    DeviceBuffer buffer = device.allocate(4 << 20);
    PinnedBuffer gate = hold(first);
    fill(first, buffer, 3);
    CompletableFuture<Void> filled = first.completion();
    buffer.slice(0, 8).close();
    buffer.close();
    buffer.close();
    assertThat(kind.users(buffer)).isEqualTo(1);
    open(gate);
    await(filled);
    Awaitility.await().until(() -> kind.users(buffer) == 0);
  }

  @Test
  void shouldRefuseRangesOutsideOfBuffersAndClosedOnes() {
    try (DeviceBuffer buffer = device.allocate(64)) {
      assertRefused(() -> first.copy(buffer, 57, words, 0, 8));
      assertRefused(() -> first.copy(buffer, 0, words, 249, 8));
      assertRefused(() -> first.copy(words, -1, buffer, 0, 8));
      assertRefused(() -> first.writeValue(buffer, 4, 1));
      assertRefused(() -> first.writeValue(words, 256, 1));
      buffer.close();
      assertRefused(() -> first.copy(words, 0, buffer, 0, 8), "closed");
    }
    try (DeviceBuffer buffer = device.allocate(64)) {
      PinnedBuffer closed = device.allocatePinned(8);
      closed.close();
      assertRefused(() -> first.copy(closed, 0, buffer, 0, 8), "closed");
    }
  }

  @Test
  void shouldRefuseToLaunchAKernelWithAClosedBuffer() throws Exception {
    DeviceBuffer buffer = device.allocate(64);
    PinnedBuffer pinned = device.allocatePinned(64);
    DeviceBuffer slice = buffer.slice(8, 8);
    buffer.close();
    pinned.close();
    for (Object closed : List.of(buffer, slice, pinned)) {
      String why = "argument 0 of kernel " + kind.store.name() + " is closed: " + closed;
      KernelArgs args = KernelArgs.of(closed, 1L);
      assertRefused(() -> first.launch(kind.store, 1, 1, args), why);
      assertRefused(() -> graphOf(stream -> stream.launch(kind.store, 1, 1, args)), why);
    }
    await(first.completion());
  }

  @Test
  void shouldRunWorkAfterTheStreamThatItWaitsFor() throws Exception {
    try (DeviceBuffer a = device.allocate(10_000);
        DeviceBuffer b = device.allocate(10_000)) {
      PinnedBuffer gate = hold(first);
      fill(first, a, 3);
      second.waitFor(first).copy(b, 0, a, 0, 10_000).writeValue(words, 0, 1);
      CompletableFuture<Void> done = second.completion();
      DeviceStream third = device.createStream("third");
      await(third.writeValue(words, 8, 1).completion());
      assertThat(done).isNotDone();
      assertThat(word(0)).isZero();
      open(gate);
      await(done);
      assertThat(bytesOf(b)).containsOnly(3);
    }
  }

  @Test
  void shouldNotWaitForWorkEnqueuedAfterTheWait() throws Exception {
    first.writeValue(words, 0, 1);
    second.waitFor(first);
    PinnedBuffer gate = hold(first);
    first.writeValue(words, 8, 1);
    await(second.completion());
    assertThat(word(0)).isEqualTo(1);
    assertThat(word(1)).isZero();
    open(gate);
    await(first.completion());
  }

  @Test
  void shouldAlternateWorkBetweenTwoStreams() throws Exception {
    try (DeviceBuffer counter = device.allocate(8)) {
      for (int i = 0; i < 500; i++) {
        add(first, counter);
        second.waitFor(first);
        add(second, counter);
        first.waitFor(second);
      }
      await(first.completion());
      assertThat(longOf(counter)).isEqualTo(1000);
    }
  }

  @Test
  void shouldNotBlockOnItselfOrAnIdleStream() throws Exception {
    await(first.waitFor(first).waitFor(second).completion());
    PinnedBuffer gate = hold(first);
    first.waitFor(first);
    CompletableFuture<Void> done = first.completion();
    open(gate);
    await(done);
  }

  @Test
  void shouldForkAndJoinByBranches() throws Exception {
    try (DeviceBuffer a = device.allocate(4096);
        DeviceBuffer b = device.allocate(4096)) {
      DeviceStream branch = first.branch("copies");
      assertThat(first.branch("copies")).isSameAs(branch);
      assertThat(first.branch("other")).isNotSameAs(branch).isNotSameAs(first);
      assertThat(second.branch("copies")).isNotSameAs(branch);
      PinnedBuffer gate = hold(branch);
      await(first.writeValue(words, 0, 1).completion()); // not for the branch
      fill(first, a, 9);
      branch.waitFor(first).copy(b, 0, a, 0, 4096);
      CompletableFuture<Void> joined = first.waitFor(branch).completion();
      assertThat(joined).isNotDone();
      open(gate);
      await(joined);
      assertThat(bytesOf(b)).containsOnly(9);
    }
  }

  @Test
  void shouldCloseBranchesWithTheirStream() {
    DeviceStream branch = first.branch("b");
    DeviceStream twig = branch.branch("c");
    first.close();
    for (DeviceStream closed : List.of(first, branch, twig)) {
      assertRefused(() -> closed.writeValue(words, 0, 1));
      assertRefused(() -> closed.branch("d"));
    }
    DeviceStream alone = second.branch("b");
    alone.close();
    assertThat(second.branch("b")).isNotSameAs(alone);
  }

  @Test
  void shouldRefuseToWaitForClosedOrNullStreams() throws Exception {
    DeviceStream closed = device.createStream("closed");
    closed.close();
    assertRefused(() -> first.waitFor(closed));
    assertRefused(() -> closed.waitFor(first));
    assertRefused(() -> first.waitFor(null));
    await(first.completion());
  }

  @Test
  void shouldContinueIfTheAwaitedStreamIsClosed() throws Exception {
    PinnedBuffer gate = hold(first);
    first.writeValue(words, 0, 1);
    second.waitFor(first).writeValue(words, 8, 1);
    CompletableFuture<Void> done = second.completion();
    first.close();
    open(gate);
    Awaitility.await().until(done::isDone);
    assertThat(word(1)).isEqualTo(1);
    // Either the work was done, or the stream that waited for it reports an error.
    if (word(0) == 0) {
      assertThatThrownBy(() -> await(done)).hasCauseInstanceOf(Aborted.class);
    } else {
      await(done);
    }
    await(second.completion());
  }

  @Test
  void shouldReleaseAStreamIfItIsClosedWhileWaiting() {
    AtomicInteger runs = new AtomicInteger();
    PinnedBuffer gate = hold(first);
    second.waitFor(first).writeValue(words, 0, 1);
    CompletableFuture<Void> waiting = second.completion();
    second.close();
    assertThatThrownBy(() -> await(waiting)).hasCauseInstanceOf(Aborted.class);
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(0);
    open(gate);
    Awaitility.await().until(() -> runs.get() == 1);
  }

  @Test
  void shouldWaitInEveryDirectionFromManyThreadsWithoutDeadlock() throws Exception {
    List<DeviceStream> streams = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      streams.add(device.createStream("s" + i));
    }
    List<CompletableFuture<Void>> threads = new ArrayList<>();
    for (int t = 0; t < 4; t++) {
      int thread = t;
      threads.add(
          CompletableFuture.runAsync(
              () -> {
                Random random = new Random(thread);
                for (int i = 1; i <= 300; i++) {
                  DeviceStream one = streams.get(random.nextInt(4));
                  one.waitFor(streams.get(random.nextInt(4)));
                  one.writeValue(words, 8 * thread, i);
                }
              }));
    }
    await(CompletableFuture.allOf(threads.toArray(CompletableFuture[]::new)));
    for (DeviceStream stream : streams) {
      await(stream.completion());
    }
    assertThat(List.of(word(0), word(1), word(2), word(3))).allMatch(last -> last > 0);
  }

  @Test
  void shouldWaitForAStreamOfAnotherDevice() throws Exception {
    assumeTrue(kind.count() > 1, "there is one device only");
    try (Device other = kind.open(1)) {
      DeviceStream there = other.createStream("there");
      PinnedBuffer gate = hold(there);
      there.writeValue(words, 0, 5);
      CompletableFuture<Void> done = first.waitFor(there).completion();
      await(second.completion());
      assertThat(done).isNotDone();
      open(gate);
      await(done);
      assertThat(word(0)).isEqualTo(5);
      await(there.waitFor(first).completion());
    }
  }
}
