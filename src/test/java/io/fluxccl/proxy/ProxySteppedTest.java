// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.proxy.ProxyHandlerResult.CONTINUE;
import static io.fluxccl.proxy.ProxyHandlerResult.FLUSH_FIFO_TAIL_AND_CONTINUE;
import static io.fluxccl.proxy.ProxyHandlerResult.STOP;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.trace.FlightEvents;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordingFile;
import org.agrona.concurrent.AgentInvoker;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The proxy stepped by hand, cycle by cycle, on the thread of the test. */
@Timeout(60)
@Tag("jdk")
class ProxySteppedTest extends ProxyFixture {
  private static final int SIZE = 16;

  private final List<String> seen = new ArrayList<>();
  private AgentInvoker stepper;

  ProxySteppedTest() {
    super(SIZE);
  }

  @Override
  ProxyOptions.Builder options() {
    return super.options().batch(4);
  }

  @AfterEach
  void stopStepping() {
    stepper.close();
  }

  /** Returns a handler that records the trigger and the tail that producers see meanwhile. */
  private ProxyHandler noting(LongFunction<ProxyHandlerResult> result) {
    return (first, second, position) -> {
      seen.add(position + ":" + first + "," + second + " tail=" + fifo.tail());
      return result.apply(position);
    };
  }

  private void step(ProxyHandler handler, ProxyOptions.Builder options) {
    proxy(handler, options);
    stepper =
        new AgentInvoker(
            error -> {
              throw new AssertionError(error);
            },
            null,
            proxy);
    stepper.start();
  }

  @Test
  void shouldHandleTriggersInOrderAndPublishTheTailAtTheEndOfEachBatch() {
    step(noting(position -> CONTINUE), options());
    push(6);

    assertThat(stepper.invoke()).isEqualTo(4);
    assertThat(fifo.tail()).isEqualTo(4);
    assertThat(stepper.invoke()).isEqualTo(2);
    assertThat(stepper.invoke()).isZero();
    assertThat(fifo.tail()).isEqualTo(6);
    assertThat(producer.sync(5)).isTrue();
    assertThat(seen)
        .containsExactly(
            "0:0,10 tail=0",
            "1:1,11 tail=0",
            "2:2,12 tail=0",
            "3:3,13 tail=0",
            "4:4,14 tail=4",
            "5:5,15 tail=4");
  }

  @Test
  void shouldPublishTheTailAtOnceWhenHandlerAsksForIt() {
    step(noting(at -> at == 1 ? FLUSH_FIFO_TAIL_AND_CONTINUE : CONTINUE), options());
    push(4);

    stepper.invoke();

    assertThat(seen)
        .containsExactly("0:0,10 tail=0", "1:1,11 tail=0", "2:2,12 tail=2", "3:3,13 tail=2");
    assertThat(fifo.tail()).isEqualTo(4);
  }

  @Test
  void shouldEndTheLoopAndKeepQueuedTriggersIfTheHandlerStops() {
    step((first, second, position) -> position == 1 ? STOP : CONTINUE, options());
    push(4);

    assertThat(stepper.invoke()).isEqualTo(2);
    assertThat(fifo.tail()).isEqualTo(2);
    assertThat(stepper.isRunning()).isTrue();
    assertThat(stepper.invoke()).isZero();
    assertThat(stepper.isClosed()).isTrue();
    assertThat(fifo.tail()).isEqualTo(2);
    assertThat(failed).isEmpty();

    try (AgentInvoker next = new AgentInvoker(errors::add, null, proxy)) {
      next.start();
      assertThat(next.invoke()).isEqualTo(2);
    }
    assertThat(errors).isEmpty();
    assertThat(fifo.tail()).isEqualTo(4);
  }

  @Test
  void shouldCallTheErrorHandlerAndContinueIfTheHandlerThrows() {
    Error failure = new AssertionError("on purpose");
    step(
        noting(
            position -> {
              if (position == 1) {
                throw failure;
              }
              return CONTINUE;
            }),
        options());
    push(3);

    assertThat(stepper.invoke()).isEqualTo(3);
    assertThat(seen).hasSize(3);
    assertThat(failed).containsExactly("1:1,11");
    assertThat(errors).containsExactly(failure);
    assertThat(fifo.tail()).isEqualTo(3);
    assertThat(producer.sync(1)).isTrue();
  }

  @Test
  void shouldContinueIfTheHandlerReturnsNull() {
    step((first, second, position) -> null, options());
    push(2);

    assertThat(stepper.invoke()).isEqualTo(2);
    assertThat(failed).containsExactly("0:0,10", "1:1,11");
    assertThat(errors).allMatch(InvalidUsage.class::isInstance);
    assertThat(fifo.tail()).isEqualTo(2);
  }

  @Test
  void shouldContinueIfHandlerAndErrorHandlerThrow() {
    step(
        (first, second, position) -> {
          throw new IllegalStateException("on purpose");
        },
        options()
            .errorHandler(
                (position, first, second, error) -> {
                  throw new IllegalStateException("on purpose, too");
                }));
    push(2);

    assertThat(stepper.invoke()).isEqualTo(2);
    assertThat(fifo.tail()).isEqualTo(2);
  }

  @Test
  void shouldDoTheDutyEachCycleWhenThereIsNoTrigger() {
    int[] calls = {0};
    step((first, second, position) -> CONTINUE, options().duty(() -> ++calls[0]));

    assertThat(stepper.invoke()).isEqualTo(1);
    push(2);
    assertThat(stepper.invoke()).isEqualTo(4);
    assertThat(calls[0]).isEqualTo(2);
  }

  @Test
  void shouldContinueIfTheDutyThrows() {
    step(
        (first, second, position) -> CONTINUE,
        options()
            .duty(
                () -> {
                  throw new IllegalStateException("on purpose");
                }));
    push(1);

    assertThat(stepper.invoke()).isEqualTo(1);
    assertThat(stepper.invoke()).isZero();
    assertThat(failed).containsExactly("loop", "loop");
    failed.clear();
  }

  @Test
  void shouldHandleQueuedTriggersIfTheStepperIsClosed() {
    step(noting(position -> CONTINUE), options());
    push(SIZE);

    stepper.close();

    assertThat(seen).hasSize(SIZE);
    assertThat(fifo.tail()).isEqualTo(SIZE);
    assertThat(failed).isEmpty();
  }

  @Test
  void shouldReportQueuedTriggersIfTheStopTimeoutIsZero() {
    step((first, second, position) -> CONTINUE, options().stopTimeout(Duration.ZERO));
    push(3);

    stepper.close();

    assertThat(failed).containsExactly("0:0,10");
    assertThat(errors.get(0))
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("triggers=3");
    assertThat(fifo.tail()).isZero();

    proxy.close();
    assertThat(failed).containsExactly("0:0,10", "0:0,10");
    assertThat(errors.get(1)).isInstanceOf(Aborted.class).hasMessageContaining("3 triggers");
  }

  @Test
  void shouldEndAndReportIfProducersKeepPushingWhileClosing() {
    step(
        (first, second, position) -> {
          // The published tail lets the handler refill the ring forever.
          producer.push(7, 7);
          return FLUSH_FIFO_TAIL_AND_CONTINUE;
        },
        options());
    producer.push(7, 7);

    stepper.close();

    assertThat(fifo.tail()).isEqualTo(SIZE);
    assertThat(failed).containsExactly(SIZE + ":7,7");
    assertThat(errors.get(0)).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldRefuseToStartOrCloseWhenSteppedByHand() {
    step((first, second, position) -> CONTINUE, options());

    assertRefused(proxy::start, "stepped by hand");
    assertRefused(proxy::close, "AgentInvoker");
    assertRefused(proxy::onStart);
    proxy.stop();
    push(1);
    assertThat(stepper.invoke()).isEqualTo(1);
  }

  @Test
  void shouldReleaseTheTailAfterTheHandlerHasReadEverything() {
    // Recorded by hand: a Mockito spy would rewrite UnsafeBuffer for every other test of this JVM.
    List<String> calls = new ArrayList<>();
    ProxyHandler handler =
        (first, second, position) -> {
          calls.add("handle " + first + "," + second);
          return CONTINUE;
        };
    step((first, second, position) -> CONTINUE, options());

    Fifo recorded = new Fifo(new RecordingDevice(calls), 2);
    try (Proxy observed = new Proxy(recorded, handler, options().build())) {
      recorded.deviceHandle(abort).push(5, 6);
      recorded.deviceHandle(abort).push(7, 8);
      assertThat(observed.doWork()).isEqualTo(2);
      calls.add("end of batch");
    }

    assertThat(calls.subList(0, calls.indexOf("end of batch")))
        .containsExactly(
            "getLongAcquire 136",
            "getLong 128",
            "handle 5,6",
            "getLongAcquire 152",
            "getLong 144",
            "handle 7,8",
            "getLongAcquire 136",
            "putLongRelease 0");
  }

  @Test
  void shouldTraceOneOfManyTriggers(@TempDir Path folder) throws IOException {
    Path file = folder.resolve("proxy.jfr");
    step((first, second, position) -> CONTINUE, options());
    try (Recording recording = new Recording()) {
      recording.enable("io.fluxccl.Trigger");
      recording.start();
      for (int i = 0; i <= 2 * FlightEvents.TRIGGER_SAMPLE; i++) {
        producer.push(i + 1, i);
        stepper.invoke();
      }
      recording.dump(file);
    }
    assertThat(RecordingFile.readAllEvents(file))
        .filteredOn(event -> event.getEventType().getName().equals("io.fluxccl.Trigger"))
        .extracting(event -> event.getLong("handled"))
        .containsExactly(0L, 1L * FlightEvents.TRIGGER_SAMPLE, 2L * FlightEvents.TRIGGER_SAMPLE);
  }
}
