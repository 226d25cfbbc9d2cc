// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.AllocatedBytes;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Calls in order; RecorderStress and RecorderLapStress test threads that record together. */
@Timeout(60)
@Tag("jdk")
class FlightRecorderTest {
  private static final int LANE = 1 << 20;

  private static FlightRecorder recorder(int calls) {
    return new FlightRecorder(0, () -> -1, calls, false);
  }

  private static long enqueue(FlightRecorder recorder, long number) {
    return recorder.enqueued(LANE, 1, 2, 3, 16 * number, number, number);
  }

  @Test
  void shouldKeepTheLastCallsInTheirOrder() {
    FlightRecorder recorder = recorder(8);
    for (long call = 1; call <= 20; call++) {
      recorder.ended(enqueue(recorder, call), Outcome.DONE, 0, 0);
    }
    List<CallRecord> calls = recorder.calls();
    assertThat(calls)
        .extracting(CallRecord::first)
        .containsExactly(13L, 14L, 15L, 16L, 17L, 18L, 19L, 20L);
    assertThat(calls)
        .allMatch(call -> call.outcome() == Outcome.DONE && call.bytes() == 16 * call.first());
    assertThat(calls).allMatch(call -> call.lane() == LANE && call.endedNs() >= call.enqueuedNs());
    assertThat(calls.get(0).begunNs()).as("what was before it is not kept").isZero();
    assertThat(calls.get(1).begunNs())
        .isEqualTo(Math.max(calls.get(1).enqueuedNs(), calls.get(0).endedNs()));
  }

  @Test
  void shouldDecodeRecordedCallsAndOutcomes() {
    FlightRecorder recorder = recorder(8);
    int kind = recorder.number("all-reduce");
    int type = recorder.number("float");
    int algorithm = recorder.number("pipe");
    assertThat(recorder.number("float")).isEqualTo(type);
    long first = recorder.enqueued(-5, kind, type, algorithm, 64, 7, 9);
    long second = recorder.enqueued(-5, kind, 0, 0, 0, 0, 0);
    recorder.ended(first, Outcome.DETACHED, 0, 0);
    recorder.ended(first, Outcome.FAILED, 0, 0); // only the first end counts
    CallRecord call = recorder.calls().get(0);
    assertThat(call.label()).isEqualTo("all-reduce 7 to 9");
    assertThat(List.of(call.kind(), call.type(), call.algorithm()))
        .containsExactly("all-reduce", "float", "pipe");
    assertThat(call.lane()).isEqualTo(-5);
    assertThat(call.outcome()).isEqualTo(Outcome.DETACHED);
    assertThat(recorder.calls().get(1).isInFlight()).isTrue();
    assertThat(recorder.calls().get(1).endedNs()).isZero();
    assertThat(second).isEqualTo(2);
  }

  @Test
  void shouldNotChangeACallThatReplacedALateOne() {
    FlightRecorder recorder = recorder(2);
    long late = enqueue(recorder, 1);
    enqueue(recorder, 2);
    enqueue(recorder, 3);
    recorder.ended(late, Outcome.DONE, 0, 0);
    assertThat(recorder.calls()).extracting(CallRecord::first).containsExactly(2L, 3L);
    assertThat(recorder.calls()).allMatch(CallRecord::isInFlight);
  }

  @Test
  void shouldNotifyListenersOnceOfEachCompletion() {
    FlightRecorder recorder = recorder(4);
    List<String> told = new ArrayList<>();
    FlightRecorder.CallListener listener =
        (kind, bytes, elapsed, outcome) -> told.add(kind + " " + bytes + " " + outcome);
    recorder.listen(listener);
    long call = enqueue(recorder, 5);
    recorder.ended(call, Outcome.FAILED, 0, 0);
    recorder.ended(call, Outcome.DONE, 0, 0);
    assertThat(told).containsExactly("1 80 FAILED");
    recorder.forget(listener);
    recorder.ended(enqueue(recorder, 6), Outcome.DONE, 0, 0);
    assertThat(told).hasSize(1);
  }

  @Test
  void shouldRemoveAListenerIfItThrows() {
    FlightRecorder recorder = recorder(8);
    List<String> told = new ArrayList<>();
    recorder.listen(
        (kind, bytes, elapsed, outcome) -> {
          told.add("wrong");
          throw new IllegalStateException("a registry that refuses a meter");
        });
    recorder.listen((kind, bytes, elapsed, outcome) -> told.add("right"));
    recorder.ended(enqueue(recorder, 1), Outcome.DONE, 0, 0);
    recorder.ended(enqueue(recorder, 2), Outcome.DONE, 0, 0);
    assertThat(told).containsExactly("wrong", "right", "right");
  }

  @Test
  void shouldRecordNothingWhenItIsOff() {
    FlightRecorder recorder = recorder(0);
    assertThat(recorder.isOn()).isFalse();
    assertThat(enqueue(recorder, 1)).isZero();
    recorder.ended(0, Outcome.DONE, 0, 0);
    assertThat(recorder.calls()).isEmpty();
  }

  @Test
  void shouldAllocateNothing() {
    FlightRecorder recorder = recorder(FlightRecorder.DEFAULT_CALLS);
    recorder.listen((kind, bytes, elapsed, outcome) -> {});
    long least =
        AllocatedBytes.least(
            1000,
            () -> {
              for (int i = 0; i < 10_000; i++) {
                recorder.ended(enqueue(recorder, i), Outcome.DONE, 0, 0);
              }
            });
    assertThat(least).as("bytes of 10000 calls").isLessThan(1000);
  }
}
