// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Streams, on a GPU and on the fake driver. */
@Timeout(60)
abstract class CudaStreamContract {
  private final CudaDevice device = CudaDevice.open(0);
  private final CudaStream stream = device.createStream("test");
  private final CudaPinnedBuffer word = device.allocatePinned(64);
  private final List<CudaPinnedBuffer> held = new ArrayList<>();

  @BeforeEach
  void load() {
    StreamKernels.load(device);
  }

  @AfterEach
  void close() {
    held.forEach(CudaStreamContract::letGo);
    held.forEach(CudaPinnedBuffer::close);
    word.close();
    device.close();
    Awaitility.await().untilAsserted(() -> assertThat(device.context().users()).isZero());
  }

  static void await(CompletableFuture<?> future) throws Exception {
    future.get(60, TimeUnit.SECONDS);
  }

  /** Enqueues a kernel that blocks later work of the stream until the gate is opened. */
  private CudaPinnedBuffer hold(CudaStream which) {
    CudaPinnedBuffer gate = device.allocatePinned(8);
    held.add(gate);
    which.launch(StreamKernels.SPIN, 1, 1, KernelArgs.of(gate, 1L));
    return gate;
  }

  private static void letGo(CudaPinnedBuffer gate) {
    gate.buffer().putLongRelease(0, 1); // pairs with the acquire in the kernel
  }

  private static KernelArgs fill(CudaBuffer buffer, int value) {
    return KernelArgs.of(buffer, buffer.size(), value);
  }

  private static byte[] bytesOf(CudaBuffer buffer) {
    byte[] bytes = new byte[(int) buffer.size()];
    buffer.download(0, bytes);
    return bytes;
  }

  @Test
  void shouldRunWorkInTheOrderEnqueued() throws Exception {
    try (CudaBuffer a = device.allocate(100_000);
        CudaBuffer b = device.allocate(100_000)) {
      CudaPinnedBuffer gate = hold(stream);
      for (int i = 1; i <= 20; i++) {
        stream.launch(StreamKernels.FILL, 8, 128, fill(a, i));
        if (i == 7) {
          stream.copy(b, 50_000, a, 0, 50_000);
        }
      }
      letGo(gate);
      await(stream.completion());
      assertThat(bytesOf(a)).containsOnly(20);
      assertThat(bytesOf(b.slice(0, 50_000))).containsOnly(0);
      assertThat(bytesOf(b.slice(50_000, 50_000))).containsOnly(7);
    }
  }

  @Test
  void shouldCompleteWhenTheWorkIsDoneAndNotBefore() throws Exception {
    await(stream.completion());
    CudaPinnedBuffer gate = hold(stream);
    CompletableFuture<Void> behind = stream.completion();
    CudaStream other = device.createStream("other");
    await(other.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(word, 5L)).completion());
    assertThat(word.buffer().getLongAcquire(0)).isEqualTo(5);
    assertThat(behind).isNotDone();
    letGo(gate);
    await(behind);
  }

  @Test
  void shouldDetectPendingWorkIfTheApplicationEnablesJCudaExceptions() throws Exception {
    EventRing ring = new EventRing(device.context());
    CudaPinnedBuffer gate = hold(stream);
    device.context().makeCurrent();
    assertThat(ring.record(stream.handle(), 7)).isEqualTo(CUresult.CUDA_SUCCESS);
    JCudaDriver.setExceptionsEnabled(true);
    try {
      CompletableFuture<Void> byNumber = stream.completion();
      CompletableFuture<Void> byEvent = stream.completion();
      stream.requireHealthy();
      assertThat(ring.reached()).isZero();
      letGo(gate);
      await(byNumber);
      await(byEvent);
      assertThat(ring.reached()).isEqualTo(7);
    } finally {
      JCudaDriver.setExceptionsEnabled(false);
      ring.destroy();
    }
  }

  /** Each kernel waits for the other, followed by a completion: see {@link EnqueueLock}. */
  @Test
  void shouldStartKernelsThatTwoThreadsLaunchConcurrently() throws Exception {
    int rounds = 300;
    CudaPinnedBuffer[] words = {device.allocatePinned(8), device.allocatePinned(8)};
    AtomicInteger arrived = new AtomicInteger();
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      for (int round = 1; round <= rounds; round++) {
        CudaStream[] streams = {device.createStream("a"), device.createStream("b")};
        KernelArgs[] store = {
          KernelArgs.of(words[0], (long) round), KernelArgs.of(words[1], (long) round)
        };
        List<Future<CompletableFuture<Void>>> launched = new ArrayList<>();
        int all = 2 * round;
        for (int i = 0; i < 2; i++) {
          int own = i;
          launched.add(
              threads.submit(
                  () -> {
                    arrived.incrementAndGet();
                    while (arrived.get() < all) {
                      Thread.onSpinWait();
                    }
                    streams[own].launch(StreamKernels.STORE, 1, 1, store[own]);
                    streams[own].launch(StreamKernels.SPIN, 1, 1, store[1 - own]);
                    return streams[own].completion();
                  }));
        }
        for (Future<CompletableFuture<Void>> completion : launched) {
          completion.get().get(60, TimeUnit.SECONDS);
        }
        for (CudaStream each : streams) {
          each.close();
        }
      }
    } finally {
      threads.shutdownNow();
      for (CudaPinnedBuffer each : words) {
        each.buffer().putLongRelease(0, rounds);
        each.close();
      }
    }
  }

  @Test
  void shouldAllocateNothingToLookAtEvents() throws Exception {
    EventRing ring = new EventRing(device.context());
    CudaPinnedBuffer gate = hold(stream);
    device.context().makeCurrent();
    assertThat(ring.record(stream.handle(), 7)).isEqualTo(CUresult.CUDA_SUCCESS);
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 10_000; i++) {
                assertThatZero(ring.reached());
              }
            });
    assertThat(allocated).as("bytes of 10000 looks").isLessThan(1000);
    letGo(gate);
    await(stream.completion());
    assertThat(ring.reached()).isEqualTo(7);
    ring.destroy();
  }

  private static void assertThatZero(long value) {
    if (value != 0) {
      throw new AssertionError("reached " + value);
    }
  }

  /** More completions than events for completions that are followed by more work. */
  @Test
  void shouldCompleteInOrderHoweverManyAreOutstanding() throws Exception {
    List<Integer> order = Collections.synchronizedList(new ArrayList<>());
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (int round = 0; round < 2; round++) {
      order.clear();
      done.clear();
      try (CudaBuffer counter = device.allocate(8)) {
        CudaPinnedBuffer gate = hold(stream);
        for (int i = 0; i < 600; i++) {
          int number = i;
          stream.launch(StreamKernels.ADD, 1, 1, KernelArgs.of(counter, 1L));
          done.add(stream.completion().thenRun(() -> order.add(number)));
        }
        Awaitility.await()
            .during(Duration.ofMillis(5))
            .untilAsserted(() -> assertThat(order).isEmpty());
        letGo(gate);
        for (CompletableFuture<Void> each : done) {
          await(each);
        }
        assertThat(order).hasSize(600).isSorted();
        ByteBuffer sum = ByteBuffer.wrap(bytesOf(counter)).order(ByteOrder.LITTLE_ENDIAN);
        assertThat(sum.getLong(0)).isEqualTo(600);
      }
    }
  }

  @Test
  void shouldStartAnAwaitedKernelWhileMemoryIsReleased() throws Exception {
    CudaDevice ofAnotherRank = CudaDevice.open(0);
    CudaStream other = ofAnotherRank.createStream("other");
    int users = device.context().users();
    CudaBuffer released = ofAnotherRank.allocate(8 << 20);
    CudaPinnedBuffer gate = hold(stream);
    CompletableFuture<Void> held = stream.completion();
    released.close();
    Awaitility.await()
        .during(Duration.ofMillis(100))
        .untilAsserted(() -> assertThat(device.context().users()).isGreaterThan(users));
    other.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(gate, 1L));
    await(held);
    ofAnotherRank.close();
  }

  @Test
  void shouldFreeMemoryAlthoughKernelsFollowEachOtherWithoutAGap() throws Exception {
    CudaDevice ofAnotherRank = CudaDevice.open(0);
    CudaBuffer used = device.allocate(8 << 20);
    int users = device.context().users();
    CudaBuffer released = ofAnotherRank.allocate(8 << 20);
    stream.launch(StreamKernels.FILL, 8, 128, fill(used, 1));
    CompletableFuture<Void> before = stream.completion();
    released.close();
    long began = HangLimit.start();
    while (device.context().users() > users) {
      HangLimit.check(began, "the memory is freed");
      stream.launch(StreamKernels.FILL, 8, 128, fill(used, 2));
      await(before); // so that the stream is never empty
      before = stream.completion();
    }
    await(before);
    used.close();
    ofAnotherRank.close();
  }

  @Test
  void shouldCompleteFuturesInTheOrderOfTheWork() throws Exception {
    CudaPinnedBuffer gate = hold(stream);
    List<Integer> order = new ArrayList<>(); // unsynchronized: completed by one thread
    CompletableFuture<?> last = null;
    for (int i = 0; i < 200; i++) {
      int number = i;
      stream.writeValue(word, 0, i);
      last = stream.completion().thenRun(() -> order.add(number));
    }
    letGo(gate);
    await(last);
    assertThat(order).hasSize(200).isSorted();
  }

  @Test
  void shouldTakeWorkFromManyThreads() throws Exception {
    CudaPinnedBuffer counters = device.allocatePinned(8 * 8);
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (int t = 0; t < 8; t++) {
      int thread = t;
      done.add(
          CompletableFuture.runAsync(
              () -> {
                for (int i = 1; i <= 100; i++) {
                  stream.writeValue(counters, 8 * thread, i);
                  stream.completion().join();
                  assertThat(counters.buffer().getLongAcquire(8 * thread)).isEqualTo(i);
                }
              }));
    }
    await(CompletableFuture.allOf(done.toArray(CompletableFuture[]::new)));
    counters.close();
  }

  @Test
  void shouldStoreValuesAfterEarlierWork() throws Exception {
    try (CudaBuffer flags = device.allocate(256)) {
      CudaPinnedBuffer gate = hold(stream);
      stream.writeValue(flags, 128, 0x0102030405060708L).writeValue(word, 8, 9);
      assertThat(word.buffer().getLongAcquire(8)).isZero();
      letGo(gate);
      await(stream.completion());
      assertThat(word.buffer().getLongAcquire(8)).isEqualTo(9);
      ByteBuffer found = ByteBuffer.wrap(bytesOf(flags)).order(ByteOrder.LITTLE_ENDIAN);
      assertThat(found.getLong(128)).isEqualTo(0x0102030405060708L);
      assertThat(found.getLong(120) | found.getLong(136)).isZero();
    }
  }

  @Test
  void shouldCopyThroughPinnedMemoryBothWays() throws Exception {
    try (CudaBuffer middle = device.allocate(3 << 20);
        CudaPinnedBuffer from = device.allocatePinned(1 << 20);
        CudaPinnedBuffer to = device.allocatePinned(1 << 20)) {
      for (int i = 0; i < from.size(); i++) {
        from.buffer().putByte(i, (byte) (i * 31));
      }
      stream
          .copy(middle, 1_000_003, from, 1, from.size() - 1)
          .copy(to, 0, middle, 1_000_003, from.size() - 1)
          .copy(to, 0, middle, 0, 0);
      await(stream.completion());
      for (int i = 0; i < from.size() - 1; i++) {
        assertThat(to.buffer().getByte(i)).isEqualTo((byte) ((i + 1) * 31));
      }
      assertThat(to.buffer().getByte(to.size() - 1)).isZero();
    }
  }

  @Test
  void shouldFailFuturesWhenClosedAndFinishTheWork() throws Exception {
    CudaPinnedBuffer gate = hold(stream);
    stream.writeValue(word, 0, 1);
    CompletableFuture<Void> future = stream.completion();
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    stream.close();
    stream.close();
    assertThatThrownBy(() -> await(future))
        .isInstanceOf(ExecutionException.class)
        .hasCauseInstanceOf(Aborted.class);
    assertThatThrownBy(() -> await(stream.completion())).hasCauseInstanceOf(Aborted.class);
    assertThatThrownBy(() -> stream.writeValue(word, 0, 1)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> stream.copyAsync(1, 2, 3)).isInstanceOf(InvalidUsage.class);
    AtomicInteger later = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(later::incrementAndGet);
    assertThat(runs.get() + later.get()).isZero();
    letGo(gate);
    Awaitility.await().until(() -> runs.get() == 1 && later.get() == 1);
    assertThat(word.buffer().getLongAcquire(0)).isEqualTo(1);
  }

  @Test
  void shouldRunActionsAfterTheWorkOfAllStreams() throws Exception {
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(1); // there was none
    CudaStream other = device.createStream("other");
    CudaPinnedBuffer first = hold(stream);
    CudaPinnedBuffer second = hold(other);
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    letGo(first);
    await(stream.completion());
    assertThat(runs).hasValue(1);
    letGo(second);
    Awaitility.await().untilAsserted(() -> assertThat(runs).hasValue(2));
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    Awaitility.await().untilAsserted(() -> assertThat(runs).hasValue(3));
  }

  @Test
  void shouldKeepMemoryForTheWorkEnqueuedBeforeItsClose() throws Exception {
    CudaBuffer buffer = device.allocate(4 << 20);
    CudaPinnedBuffer gate = hold(stream);
    stream.launch(StreamKernels.FILL, 8, 128, fill(buffer, 3));
    CompletableFuture<Void> filled = stream.completion();
    buffer.close();
    assertThat(buffer.allocation().users()).isEqualTo(1);
    assertThatThrownBy(() -> stream.launch(StreamKernels.FILL, 1, 1, fill(buffer, 3)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    letGo(gate);
    await(filled);
    Awaitility.await().untilAsserted(() -> assertThat(buffer.allocation().users()).isZero());
  }

  @Test
  void shouldCountWorkThatWasEnqueuedThroughItsHandle() {
    device.makeCurrent();
    CudaPinnedBuffer gate = device.allocatePinned(8);
    assertThat(stream.handle()).isSameAs(stream.handle());
    stream.launch(StreamKernels.SPIN, 1, 1, KernelArgs.of(gate, 1L));
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(
            JCudaDriver.cuStreamWriteValue64(
                stream.handle(), new CudaPointer(word.deviceAddress()), 3, 0))
        .isZero();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(0);
    letGo(gate);
    Awaitility.await().untilAsserted(() -> assertThat(runs).hasValue(2));
    assertThat(word.buffer().getLongAcquire(0)).isEqualTo(3);
    gate.close();
  }

  @Test
  void shouldRefuseInvalidArguments() {
    HostDevice host = HostDevice.create();
    try (CudaBuffer buffer = device.allocate(64);
        HostBuffer foreign = host.allocate(64)) {
      assertThatThrownBy(
              () -> stream.launch(HostKernel.of("k", (t, a) -> {}), 1, 1, KernelArgs.NONE))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("is for HOST");
      for (int[] shape :
          new int[][] {{0, 1, 0}, {1, 0, 0}, {1, 1025, 0}, {1, 1, -1}, {1, 1, 1 << 20}}) {
        assertThatThrownBy(
                () ->
                    stream.launch(
                        StreamKernels.TRAP, shape[0], shape[1], shape[2], KernelArgs.NONE))
            .isInstanceOf(InvalidUsage.class);
      }
      for (Object argument :
          new Object[] {foreign, "text", new byte[40_000], host.allocatePinned(8)}) {
        assertThatThrownBy(
                () -> stream.launch(StreamKernels.TRAP, 1, 1, KernelArgs.of(1, argument)))
            .isInstanceOf(InvalidUsage.class);
      }
      assertThatThrownBy(() -> stream.copy(buffer, 0, foreign, 0, 8))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.copy(host.allocatePinned(8), 0, buffer, 0, 8))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.copy(buffer, 57, word, 0, 8))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.copy(word, -1, buffer, 0, 8))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.writeValue(buffer, 4, 1)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> stream.writeValue(word, 64, 1)).isInstanceOf(InvalidUsage.class);
    }
    host.close();
    assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldAllocateNothingOnTheHotCalls() throws Exception {
    try (CudaBuffer a = device.allocate(64);
        CudaBuffer b = device.allocate(64)) {
      long allocated =
          AllocatedBytes.least(
              10,
              () -> {
                for (int i = 0; i < 1000; i++) {
                  stream.copyAsync(a.address(), b.address(), 64);
                  stream.writeValue64(word.deviceAddress(), i);
                }
              });
      assertThat(allocated).as("bytes of 1000 rounds").isLessThan(1000);
      await(stream.completion());
      assertThat(word.buffer().getLongAcquire(0)).isEqualTo(999);
    }
  }
}
