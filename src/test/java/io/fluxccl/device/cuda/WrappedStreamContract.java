// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.StreamScenario;
import io.fluxccl.testing.Sanitizer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Streams of another owner, on a GPU and on the fake driver. */
@Timeout(120)
abstract class WrappedStreamContract extends StreamScenario {
  private final CudaDevice gpu = (CudaDevice) device;
  private final EngineStream engine = new EngineStream(gpu);
  private final CudaStream stream = gpu.wrapStream(engine.address());

  /** Numbers that kernels and copies change, zero at first. */
  private final DeviceBuffer memory = device.allocate(4096);

  WrappedStreamContract() {
    super(new CudaTestDevice());
  }

  @AfterEach
  void closeEngine() {
    stream.close();
    engine.close();
    memory.close();
  }

  private long at(int index) {
    return memory.address() + index * 8L;
  }

  private long number(int index) {
    return longOf(memory.slice(index * 8L, 8));
  }

  private static void add(DeviceStream on, long address, long value) {
    on.launch(StreamKernels.ADD, 1, 1, KernelArgs.of(address, value));
  }

  @Test
  void shouldRunInOrderWithTheWorkOfItsOwner() throws Exception {
    for (int round = 1; round <= 100; round++) {
      engine.add(at(0), 1);
      stream.copy(memory, 8, memory, 0, 8);
      engine.add(at(1), 1000);
      stream.copy(memory, 16, memory, 8, 8);
      CompletableFuture<Void> done = stream.completion();
      engine.add(at(0), 1);
      await(done);
      assertThat(number(2)).isEqualTo(2L * round - 1 + 1000);
    }
    assertThat(stream.isCapturing()).isFalse();
    assertThat(gpu.wrap(engine.handle()).handle()).isEqualTo(engine.handle());
  }

  @Test
  void shouldLeaveTheStreamToItsOwnerWhenItIsClosed() {
    PinnedBuffer gate = hold(stream);
    CompletableFuture<Void> done = stream.writeValue(memory, 0, 7).completion();
    engine.add(at(0), 2);
    stream.close(); // waits for nothing
    assertThatThrownBy(() -> await(done)).hasCauseInstanceOf(Aborted.class);
    assertRefused(() -> stream.writeValue(memory, 0, 1));
    open(gate);
    engine.add(at(0), 30);
    engine.await();
    assertThat(number(0)).isEqualTo(39);
  }

  @Test
  void shouldRefuseDefaultStreamsAndStreamsOfOtherGpus() {
    for (int handle = 0; handle < 3; handle++) {
      int each = handle;
      assertRefused(() -> gpu.wrapStream(each), "default stream");
    }
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    try (CudaDevice other = CudaDevice.open(1)) {
      assertRefused(() -> other.wrapStream(engine.address()), "another GPU");
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {EngineStream.GLOBAL, EngineStream.THREAD_LOCAL, EngineStream.RELAXED})
  void shouldBecomePartOfTheGraphThatItsOwnerCaptures(int mode) throws Exception {
    CudaStream branch = stream.branch("branch");
    // The library's threads query events and free memory during the capture.
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> beside = first.completion();
    CompletableFuture<Void> besideToo = first.completion();
    DeviceBuffer freed = device.allocate(4 << 20);
    engine.beginCapture(mode);
    assertThat(stream.isCapturing()).isTrue();
    engine.add(at(0), 1);
    stream.copy(memory, 8, memory, 0, 8);
    branch.waitFor(stream);
    add(branch, at(2), 5);
    add(stream, at(3), 3);
    stream.waitFor(branch);
    engine.add(at(2), 1);
    assertThat(stream.completion()).isDone();
    freed.close();
    open(gate);
    await(beside);
    await(besideToo);
    Awaitility.await().until(() -> kind.users(freed) == 0);
    AtomicInteger done = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(done::incrementAndGet);
    Awaitility.await().until(() -> done.get() == 1); // nothing of it is enqueued
    engine.endCapture();
    assertThat(stream.isCapturing()).isFalse();
    assertThat(number(0)).as("what was captured has not run").isZero();
    for (int replay = 1; replay <= 50; replay++) {
      engine.replay();
      engine.add(at(0), 100); // work of the engine in between
      stream.copy(memory, 32, memory, 0, 8);
      await(stream.completion());
      assertThat(number(1)).isEqualTo(replay + 100L * (replay - 1));
      assertThat(number(2)).isEqualTo(6L * replay);
      assertThat(number(3)).isEqualTo(3L * replay);
      assertThat(number(4)).isEqualTo(101L * replay);
    }
  }

  @Test
  void shouldRefuseWorkThatWouldInvalidateOrJoinACapture() throws Exception {
    DeviceGraph graph = device.record("graph", each -> each.copy(memory, 8, memory, 0, 8));
    engine.beginCapture(EngineStream.GLOBAL);
    stream.copy(memory, 8, memory, 0, 8);
    assertRefused(() -> first.waitFor(stream), "owner");
    assertRefused(() -> stream.waitFor(first), "owner");
    assertRefused(() -> stream.launch(graph), "owner");
    engine.add(at(0), 4);
    engine.endCapture();
    first.copy(memory, 16, memory, 0, 8);
    await(first.completion());
    engine.replay();
    first.waitFor(stream);
    stream.waitFor(first).launch(graph);
    await(stream.completion());
    assertThat(number(1)).isEqualTo(4);
  }

  @Test
  void shouldRunActionsAfterItsWorkIfTheOwnerCapturesMeanwhile() {
    PinnedBuffer gate = hold(stream); // and no completion
    engine.beginCapture(EngineStream.RELAXED);
    engine.add(at(0), 1);
    AtomicInteger done = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(done::incrementAndGet);
    engine.endCapture();
    assertThat(done).hasValue(0);
    open(gate);
    Awaitility.await().until(() -> done.get() == 1);
  }

  @Test
  @DisabledIfSystemProperty(
      named = Sanitizer.PROPERTY,
      matches = "memcheck",
      disabledReason = "memcheck lets no launch of 300 pass while the first one waits")
  void shouldMarkMoreWorkThanThereAreEvents() throws Exception {
    PinnedBuffer gate = hold(stream);
    for (int i = 0; i < 300; i++) {
      add(stream, at(0), 1);
    }
    AtomicInteger done = new AtomicInteger();
    device.whenEnqueuedWorkIsDone(done::incrementAndGet);
    CompletableFuture<Void> completion = stream.completion();
    assertThat(completion).isNotDone();
    assertThat(done).hasValue(0);
    open(gate);
    await(completion);
    Awaitility.await().until(() -> done.get() == 1);
    assertThat(number(0)).isEqualTo(300);
  }

  @Test
  void shouldFreeMemoryWhileTheWrappedStreamIsIdle() {
    stream.copy(memory, 8, memory, 0, 8); // and no completion
    DeviceBuffer large = device.allocate(8 << 20);
    long free = CudaMemoryContract.free(gpu);
    large.close();
    Awaitility.await().until(() -> CudaMemoryContract.free(gpu) > free);
  }
}
