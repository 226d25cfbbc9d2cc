// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.Device;
import io.fluxccl.device.PinnedBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
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
  private final List<Fifo> fifos = new ArrayList<>();

  @AfterEach
  void shouldHaveFreedEverything() {
    fifos.forEach(Fifo::close);
    abort.close();
    assertThat(device.openBuffers()).isZero();
  }

  private Fifo fifo(int size) {
    Fifo fifo = new Fifo(device, size);
    fifos.add(fifo);
    return fifo;
  }

  @Test
  void shouldHaveDefaultSizeWhenNoneIsGiven() {
    Fifo fifo = new Fifo(device);
    fifos.add(fifo);

    assertThat(fifo.size()).isEqualTo(512);
    assertThat(fifo.poll()).isFalse();
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 8, 512})
  void shouldDeliverZeroTriggersOverManyLaps(int size) {
    Fifo fifo = fifo(size);
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

  @Test
  void shouldKeepEveryBitButTheCommitBitWhenPayloadIsAllOnes() {
    Fifo fifo = fifo(2);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    for (int i = 0; i < 9; i++) {
      producer.push(-1, -1);
      assertThat(fifo.poll()).isTrue();
      assertThat(fifo.first()).isEqualTo(-1);
      assertThat(fifo.second()).isEqualTo(Long.MAX_VALUE);
      fifo.pop();
      assertThat(fifo.poll()).isFalse();
      fifo.publishTail();
    }
  }

  @Test
  void shouldCountCommittedTriggersWhenRingIsPartlyAndWhollyFull() {
    Fifo fifo = fifo(4);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    for (int pushed = 0; pushed <= 4; pushed++) {
      assertThat(fifo.committed()).isEqualTo(pushed);
      if (pushed < 4) {
        producer.push(pushed, 0);
      }
    }
  }

  @Test
  void shouldBlockTheProducerUntilTheTailIsReleasedWhenRingIsFull() throws Exception {
    Fifo fifo = fifo(4);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    for (int i = 0; i < 4; i++) {
      producer.push(i, i);
    }
    AtomicReference<Thread> thread = new AtomicReference<>();
    CompletableFuture<Long> fifth =
        CompletableFuture.supplyAsync(
            () -> {
              thread.set(Thread.currentThread());
              return producer.push(4, 4);
            });
    await().until(() -> thread.get() != null && sleeps(thread.get()));

    assertThat(fifo.poll()).isTrue();
    fifo.pop();
    await().during(50, java.util.concurrent.TimeUnit.MILLISECONDS).until(() -> !fifth.isDone());
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
  void shouldReturnFromSyncOnlyWhenTheTailIsPastThePosition() throws Exception {
    Fifo fifo = fifo(4);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    long position = producer.push(1, 1);
    AtomicReference<Thread> thread = new AtomicReference<>();
    CompletableFuture<Boolean> synced =
        CompletableFuture.supplyAsync(
            () -> {
              thread.set(Thread.currentThread());
              return producer.sync(position);
            });
    await().until(() -> thread.get() != null && sleeps(thread.get()));
    assertThat(synced).isNotDone();

    assertThat(fifo.poll()).isTrue();
    fifo.pop();
    fifo.publishTail();

    assertThat(synced.get(60, SECONDS)).isTrue();
    assertThat(producer.sync(position)).isTrue();
  }

  @Test
  void shouldSyncWithAllThatWasPushedWhenNoPositionIsGiven() throws Exception {
    Fifo fifo = fifo(4);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    assertThat(producer.sync()).as("nothing was pushed").isTrue();
    producer.push(1, 1);
    producer.push(2, 2);
    AtomicReference<Thread> thread = new AtomicReference<>();
    CompletableFuture<Boolean> synced =
        CompletableFuture.supplyAsync(
            () -> {
              thread.set(Thread.currentThread());
              return producer.sync();
            });
    for (int handled = 0; handled < 2; handled++) {
      await().until(() -> thread.get() != null && sleeps(thread.get()));
      assertThat(synced).isNotDone();
      assertThat(fifo.poll()).isTrue();
      fifo.pop();
      fifo.publishTail();
    }
    assertThat(synced.get(60, SECONDS)).isTrue();
  }

  @Test
  void shouldStopPushingIfAbortedWhileTheRingIsFull() throws Exception {
    Fifo fifo = fifo(2);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    producer.push(0, 0);
    long last = producer.push(1, 1);
    CompletableFuture<Long> pushed = CompletableFuture.supplyAsync(() -> producer.push(2, 2));
    CompletableFuture<Boolean> synced = CompletableFuture.supplyAsync(() -> producer.sync(last));
    await()
        .during(20, java.util.concurrent.TimeUnit.MILLISECONDS)
        .until(() -> !pushed.isDone() && !synced.isDone());

    abort.set();

    assertThat(pushed.get(60, SECONDS)).isEqualTo(FifoDeviceHandle.ABORTED);
    assertThat(synced.get(60, SECONDS)).isFalse();
    assertThat(producer.sync(FifoDeviceHandle.ABORTED)).isFalse();
  }

  @Test
  void shouldReportAHandledTriggerIfAbortedAfterwards() {
    Fifo fifo = fifo(2);
    FifoDeviceHandle producer = fifo.deviceHandle(abort);
    long position = producer.push(0, 0);
    fifo.poll();
    fifo.pop();
    fifo.publishTail();

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

  /** Returns whether a producer has waited so long that it sleeps between polls. */
  private static boolean sleeps(Thread producer) {
    return producer.getState() == Thread.State.TIMED_WAITING;
  }
}
