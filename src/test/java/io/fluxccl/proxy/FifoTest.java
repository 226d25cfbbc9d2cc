// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.Device;
import io.fluxccl.device.PinnedBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.mockito.ArgumentMatchers;
import org.mockito.Mockito;

@Timeout(60)
@Tag("jdk")
class FifoTest {
  private final DirectMemoryDevice device = new DirectMemoryDevice();
  private final AbortFlag abort = new AbortFlag(device);
  private final Fifo fifo = new Fifo(device, 4);
  private final FifoDeviceHandle producer = fifo.deviceHandle(abort);

  @AfterEach
  void shouldHaveFreedEverything() {
    fifo.close();
    abort.close();
    assertThat(device.openBuffers()).isZero();
  }

  /** Runs a call of a producer; returns once it has waited so long that it sleeps between polls. */
  private static <T> CompletableFuture<T> sleepingIn(Supplier<T> call) {
    AtomicReference<Thread> thread = new AtomicReference<>();
    CompletableFuture<T> result =
        CompletableFuture.supplyAsync(
            () -> {
              thread.set(Thread.currentThread());
              return call.get();
            });
    await()
        .until(() -> thread.get() != null && thread.get().getState() == Thread.State.TIMED_WAITING);
    return result;
  }

  /** Handles the next trigger, which must be there. */
  private void handleNext() {
    assertThat(fifo.poll()).isTrue();
    fifo.pop();
    fifo.publishTail();
  }

  @Test
  void shouldHaveDefaultSizeWhenNoneIsGiven() {
    try (Fifo standard = new Fifo(device)) {
      assertThat(standard.size()).isEqualTo(512);
      assertThat(standard.poll()).isFalse();
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 8, 512})
  void shouldDeliverZeroTriggersOverManyLaps(int size) {
    try (Fifo fifo = new Fifo(device, size)) {
      FifoDeviceHandle producer = fifo.deviceHandle(abort);
      for (int position = 0; position < 5 * size; position++) {
        assertThat(fifo.poll()).isFalse();
        assertThat(producer.push(0, 0)).isEqualTo(position);
        assertThat(fifo.poll()).isTrue();
        assertThat(fifo.first()).isZero();
        assertThat(fifo.second()).isZero();
        fifo.pop();
        fifo.publishTail();
        assertThat(fifo.tail()).isEqualTo(position + 1);
      }
    }
  }

  @Test
  void shouldCountCommittedTriggersWhenRingIsPartlyAndWhollyFull() {
    for (int pushed = 0; pushed <= 4; pushed++) {
      assertThat(fifo.committed()).isEqualTo(pushed);
      if (pushed < 4) {
        producer.push(pushed, 0);
      }
    }
  }

  @Test
  void shouldBlockTheProducerUntilTheTailIsReleasedWhenRingIsFull() throws Exception {
    for (int i = 0; i < 4; i++) {
      producer.push(i, i);
    }
    CompletableFuture<Long> fifth = sleepingIn(() -> producer.push(4, 4));

    assertThat(fifo.poll()).isTrue();
    fifo.pop();
    await().during(50, MILLISECONDS).until(() -> !fifth.isDone());
    assertThat(fifo.committed()).isEqualTo(3);

    fifo.publishTail();
    assertThat(fifth.get(60, SECONDS)).isEqualTo(4);
    for (int i = 1; i <= 4; i++) {
      assertThat(fifo.poll()).isTrue();
      assertThat(fifo.first()).isEqualTo(i);
      fifo.pop();
    }
  }

  @Test
  void shouldSyncWithAllThatWasPushedWhenNoPositionIsGiven() throws Exception {
    assertThat(producer.sync()).as("nothing was pushed").isTrue();
    producer.push(1, 1);
    producer.push(2, 2);
    CompletableFuture<Boolean> synced = sleepingIn(() -> producer.sync());
    handleNext();
    await().during(20, MILLISECONDS).until(() -> !synced.isDone());
    handleNext();
    assertThat(synced.get(60, SECONDS)).isTrue();
  }

  @Test
  void shouldStopPushingIfAbortedWhileTheRingIsFull() throws Exception {
    for (int i = 0; i < 3; i++) {
      producer.push(i, i);
    }
    long last = producer.push(3, 3);
    CompletableFuture<Long> pushed = CompletableFuture.supplyAsync(() -> producer.push(4, 4));
    CompletableFuture<Boolean> synced = CompletableFuture.supplyAsync(() -> producer.sync(last));
    await().during(20, MILLISECONDS).until(() -> !pushed.isDone() && !synced.isDone());

    abort.set();

    assertThat(pushed.get(60, SECONDS)).isEqualTo(FifoDeviceHandle.ABORTED);
    assertThat(synced.get(60, SECONDS)).isFalse();
    assertThat(producer.sync(FifoDeviceHandle.ABORTED)).isFalse();
  }

  @Test
  void shouldReportAHandledTriggerIfAbortedAfterwards() {
    long position = producer.push(0, 0);
    handleNext();

    abort.set();

    assertThat(producer.sync(position)).isTrue();
    assertThat(producer.push(1, 1)).isEqualTo(1);
  }

  @Test
  void shouldFreeTheRingWhenTheControlWordsCannotBeAllocated() {
    PinnedBuffer pinned = Mockito.mock(PinnedBuffer.class);
    Device full = Mockito.mock(Device.class);
    Mockito.when(full.allocatePinned(ArgumentMatchers.anyInt())).thenReturn(pinned);
    Mockito.when(full.allocate(ArgumentMatchers.anyLong()))
        .thenThrow(new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "no memory"));

    assertThatThrownBy(() -> new Fifo(full, 8)).isInstanceOf(DeviceFailure.class);
    Mockito.verify(pinned).close();
  }
}
