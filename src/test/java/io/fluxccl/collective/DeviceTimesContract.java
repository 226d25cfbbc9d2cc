// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT32;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.trace.CallRecord;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Device times of calls in the flight recorder. Two ranks. */
@Timeout(120)
abstract class DeviceTimesContract {
  private static final long BYTES = 16384;

  /** The driver's times have steps of half a microsecond, of which several add up. */
  private static final long STEPS_NS = 2000;

  /** A call may end on the device before its enqueueing is recorded. */
  private static final long SOON_NS = 500_000_000;

  private static final long WAITED_NS = 100_000_000;

  private final List<AutoCloseable> opened = new ArrayList<>();
  private final List<Communicator> communicators = new ArrayList<>();
  private final List<Collectives> collectives = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  private void open(boolean deviceTimes) {
    CommunicatorOptions options = CommunicatorOptions.DEFAULT.withDeviceTimes(deviceTimes);
    List<CompletableFuture<Collectives>> opening = new ArrayList<>();
    for (LocalBootstrap bootstrap : LocalBootstrap.group(2)) {
      Device device =
          OnRanks.Runner.isOnGpus(getClass())
              ? CudaDevice.open(bootstrap.rank())
              : HostDevice.create();
      Communicator communicator = Communicator.create(bootstrap, device, options);
      communicators.add(communicator);
      buffers.add(device.allocate(BYTES));
      opening.add(Collectives.create(communicator));
      opened.addAll(List.of(bootstrap, device, communicator, buffers.get(bootstrap.rank())));
    }
    opening.forEach(each -> collectives.add(each.join()));
    opened.addAll(collectives);
  }

  @AfterEach
  void close() throws Exception {
    while (!opened.isEmpty()) {
      opened.remove(opened.size() - 1).close();
    }
  }

  private CompletableFuture<Void> call(int rank) {
    DeviceBuffer x = buffers.get(rank);
    return collectives.get(rank).allReduce(x, FLOAT32, ReduceOp.SUM).toFuture();
  }

  /** Enqueues {@code count} calls on both ranks before it awaits any of them. */
  private void callBoth(int count) throws Exception {
    List<CompletableFuture<Void>> calls = calls(0, count);
    calls.addAll(calls(1, count));
    await(calls);
  }

  private List<CompletableFuture<Void>> calls(int rank, int count) {
    List<CompletableFuture<Void>> calls = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      calls.add(call(rank));
    }
    return calls;
  }

  private static void await(List<CompletableFuture<Void>> calls) throws Exception {
    for (CompletableFuture<Void> each : calls) {
      each.get(60, TimeUnit.SECONDS);
    }
  }

  private List<CallRecord> recorded(int rank) {
    return communicators.get(rank).recorder().calls();
  }

  @Test
  void shouldRecordDeviceTimesOfEachCall() throws Exception {
    long beganNs = System.nanoTime();
    open(true);
    callBoth(20);
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    List<CapturedPipeline> captured = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      DeviceBuffer x = buffers.get(rank);
      Pipeline pipeline = collectives.get(rank).pipeline();
      captured.add(pipeline.allReduce(x, FLOAT32, ReduceOp.MAX).barrier().capture());
      runs.add(captured.get(rank).run().toFuture());
      runs.add(captured.get(rank).run().toFuture());
    }
    await(runs);
    for (int rank = 0; rank < 2; rank++) {
      List<CallRecord> calls = recorded(rank);
      assertThat(calls).hasSize(22);
      long before = beganNs;
      for (CallRecord each : calls) {
        assertThat(each.deviceBegunNs()).isBetween(before, each.deviceEndedNs());
        assertThat(each.deviceEndedNs()).isLessThanOrEqualTo(each.endedNs());
        before = each.deviceEndedNs() - STEPS_NS;
      }
    }
    captured.forEach(CapturedPipeline::close);
  }

  @Test
  void shouldCountTheTimeForWhichACallWaitsForTheOtherRank() throws Exception {
    open(true);
    callBoth(1);
    long longest = 0;
    for (int i = 1; i <= 20 && longest < WAITED_NS; i++) { // repeats if rank 0 started late
      CompletableFuture<Void> early = call(0);
      Thread.sleep(300); // the device times must include this time
      await(List.of(early, call(1)));
      CallRecord waited = recorded(0).get(i);
      long onDevice = waited.deviceEndedNs() - waited.deviceBegunNs();
      assertThat(onDevice).isLessThanOrEqualTo(waited.endedNs() - waited.enqueuedNs() + SOON_NS);
      longest = Math.max(longest, onDevice);
    }
    assertThat(longest).isGreaterThanOrEqualTo(WAITED_NS);
  }

  @Test
  void shouldKeepTimesInOrderOverALongTime() throws Exception {
    open(true);
    callBoth(1);
    Thread.sleep(1100); // longer than the base event of the device times is used
    callBoth(2);
    Thread.sleep(1100);
    callBoth(2);
    List<CallRecord> calls = recorded(1);
    for (int i = 0; i < calls.size(); i++) {
      CallRecord each = calls.get(i);
      long least = i == 0 ? 0 : calls.get(i - 1).deviceEndedNs() - STEPS_NS;
      assertThat(each.deviceBegunNs()).isBetween(least, each.deviceEndedNs());
      assertThat(each.deviceEndedNs()).isBetween(each.enqueuedNs() - SOON_NS, each.endedNs());
    }
  }

  @Test
  void shouldCompleteCallsIfMoreAreInFlightThanCanBeTimed() throws Exception {
    open(true);
    // One thread per rank: a GPU whose queue is full blocks the thread that enqueues.
    CompletableFuture<List<CompletableFuture<Void>>> early =
        CompletableFuture.supplyAsync(() -> calls(0, LaneWatch.MOST_TIMED + 2));
    List<CompletableFuture<Void>> calls = calls(1, LaneWatch.MOST_TIMED + 2);
    calls.addAll(early.get(60, TimeUnit.SECONDS));
    await(calls);
    Awaitility.await().until(() -> recorded(0).stream().noneMatch(CallRecord::isInFlight));
    assertThat(recorded(0)).filteredOn(each -> each.deviceEndedNs() == 0).hasSizeLessThan(3);
    callBoth(1);
    assertThat(recorded(0).get(LaneWatch.MOST_TIMED + 2).deviceEndedNs()).isNotZero();
  }

  @Test
  void shouldRecordNoDeviceTimesByDefault() throws Exception {
    open(false);
    callBoth(2);
    assertThat(recorded(0)).allMatch(each -> each.deviceBegunNs() == 0 && each.endedNs() != 0);
  }
}
