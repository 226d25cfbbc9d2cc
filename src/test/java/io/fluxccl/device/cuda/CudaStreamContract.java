// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.StreamContract;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

/** Streams of GPUs, beyond the contract of all devices. */
abstract class CudaStreamContract extends StreamContract {
  private final PrimaryContext context = ((CudaDevice) device).context();
  private final CudaStream stream = (CudaStream) first;

  CudaStreamContract() {
    super(new CudaTestDevice());
  }

  /** Records an event after the work of a stream. */
  private LiveCudaStream.EventRing record(DeviceStream on) {
    LiveCudaStream.EventRing ring = ((LiveCudaStream) on).new EventRing();
    context.makeCurrent();
    assertThat(ring.record(((CudaStream) on).handle(), 7)).isEqualTo(CUresult.CUDA_SUCCESS);
    return ring;
  }

  @Test
  void shouldDetectPendingWorkIfTheApplicationEnablesJCudaExceptions() throws Exception {
    PinnedBuffer gate = hold(first);
    LiveCudaStream.EventRing ring = record(first);
    JCudaDriver.setExceptionsEnabled(true);
    try {
      CompletableFuture<Void> byNumber = first.completion();
      CompletableFuture<Void> byEvent = first.completion();
      stream.requireHealthy();
      assertThat(ring.reached()).isZero();
      open(gate);
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
    PinnedBuffer[] gates = {gate(), gate()};
    AtomicInteger arrived = new AtomicInteger();
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      for (int round = 1; round <= rounds; round++) {
        DeviceStream[] streams = {device.createStream("a"), device.createStream("b")};
        KernelArgs[] store = {
          KernelArgs.of(gates[0], (long) round), KernelArgs.of(gates[1], (long) round)
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
                    streams[own].launch(kind.store, 1, 1, store[own]);
                    streams[own].launch(kind.spin, 1, 1, store[1 - own]);
                    return streams[own].completion();
                  }));
        }
        for (Future<CompletableFuture<Void>> completion : launched) {
          await(completion.get());
        }
        for (DeviceStream each : streams) {
          each.close();
        }
      }
    } finally {
      threads.shutdownNow();
      for (PinnedBuffer each : gates) {
        each.buffer().putLongRelease(0, rounds);
      }
    }
  }

  @Test
  void shouldStartAnAwaitedKernelWhileMemoryIsReleased() throws Exception {
    try (Device ofAnotherRank = kind.open(0)) {
      DeviceStream other = ofAnotherRank.createStream("other");
      int users = context.users();
      DeviceBuffer released = ofAnotherRank.allocate(8 << 20);
      PinnedBuffer gate = hold(first);
      CompletableFuture<Void> held = first.completion();
      released.close();
      Awaitility.await()
          .during(Duration.ofMillis(100))
          .untilAsserted(() -> assertThat(context.users()).isGreaterThan(users));
      other.launch(kind.store, 1, 1, KernelArgs.of(gate, 1L));
      await(held);
    }
  }

  @Test
  void shouldFreeMemoryAlthoughKernelsFollowEachOtherWithoutAGap() throws Exception {
    try (Device ofAnotherRank = kind.open(0);
        DeviceBuffer used = device.allocate(8 << 20)) {
      int users = context.users();
      DeviceBuffer released = ofAnotherRank.allocate(8 << 20);
      KernelArgs fill = KernelArgs.of(used, used.size(), 1);
      CompletableFuture<Void> before = first.launch(kind.fill, 8, 128, fill).completion();
      released.close();
      long began = HangLimit.start();
      while (context.users() > users) {
        HangLimit.check(began, "the memory is freed");
        first.launch(kind.fill, 8, 128, fill);
        await(before); // so that the stream is never empty
        before = first.completion();
      }
      await(before);
    }
  }

  @Test
  void shouldFailFuturesWhenClosedAndFinishTheWork() throws Exception {
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> future = first.writeValue(words, 0, 1).completion();
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    first.close();
    first.close();
    assertThatThrownBy(() -> await(future)).hasCauseInstanceOf(Aborted.class);
    assertThatThrownBy(() -> await(first.completion())).hasCauseInstanceOf(Aborted.class);
    assertRefused(() -> first.writeValue(words, 0, 1));
    assertRefused(() -> stream.copyAsync(1, 2, 3));
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(0);
    open(gate);
    Awaitility.await().until(() -> runs.get() == 2);
    assertThat(word(0)).isEqualTo(1);
  }

  @Test
  void shouldCountWorkThatWasEnqueuedThroughItsHandle() {
    context.makeCurrent();
    assertThat(stream.handle()).isSameAs(stream.handle());
    PinnedBuffer gate = hold(first);
    AtomicInteger runs = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    CudaPointer word = new CudaPointer(words.deviceAddress());
    assertThat(JCudaDriver.cuStreamWriteValue64(stream.handle(), word, 3, 0)).isZero();
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(0);
    open(gate);
    Awaitility.await().until(() -> runs.get() == 2);
    assertThat(word(0)).isEqualTo(3);
  }

  @Test
  void shouldRefuseInvalidArguments() throws Exception {
    try (HostDevice host = HostDevice.create();
        DeviceBuffer buffer = device.allocate(64);
        DeviceBuffer foreign = host.allocate(64);
        PinnedBuffer foreignPinned = host.allocatePinned(8)) {
      HostKernel foreignKernel = HostKernel.of("k", (thread, args) -> {});
      assertRefused(() -> first.launch(foreignKernel, 1, 1, KernelArgs.NONE), "is for HOST");
      int[][] shapes = {{0, 1, 0}, {1, 0, 0}, {1, 1025, 0}, {1, 1, -1}, {1, 1, 1 << 20}};
      for (int[] shape : shapes) {
        assertRefused(
            () -> stream.launch(StreamKernels.TRAP, shape[0], shape[1], shape[2], KernelArgs.NONE));
      }
      for (Object argument : new Object[] {foreign, "text", new byte[40_000], foreignPinned}) {
        assertRefused(() -> first.launch(StreamKernels.TRAP, 1, 1, KernelArgs.of(1, argument)));
      }
      assertRefused(() -> first.copy(buffer, 0, foreign, 0, 8));
      assertRefused(() -> first.copy(foreignPinned, 0, buffer, 0, 8));
      assertRefused(() -> first.waitFor(host.createStream("s")));
      assertRefused(() -> host.createStream("s").waitFor(first));
      buffer.close();
      assertRefused(() -> add(first, buffer), "closed");
    }
    await(first.completion());
  }

  @Test
  void shouldAllocateNothingOnTheHotCalls() throws Exception {
    PinnedBuffer gate = hold(second);
    LiveCudaStream.EventRing ring = record(second);
    try (DeviceBuffer a = device.allocate(64);
        DeviceBuffer b = device.allocate(64)) {
      long allocated =
          AllocatedBytes.least(
              1000,
              () -> {
                for (int i = 0; i < 1000; i++) {
                  stream.copyAsync(a.address(), b.address(), 64);
                  stream.writeValue64(words.deviceAddress(), i);
                  first.branch("b").waitFor(first);
                  first.waitFor(first.branch("b"));
                  if (ring.reached() != 0) {
                    throw new AssertionError("the event is not reached");
                  }
                }
              });
      assertThat(allocated).as("bytes of 1000 rounds").isLessThan(1000);
      await(first.completion());
      assertThat(word(0)).isEqualTo(999);
    }
    open(gate);
    await(second.completion());
    assertThat(ring.reached()).isEqualTo(7);
    ring.destroy();
  }
}
