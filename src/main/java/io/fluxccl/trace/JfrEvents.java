// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.FluxCclException;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/** The events themselves; loaded only if the module jdk.jfr is present. */
final class JfrEvents {
  private static final CallEvent CALL = new CallEvent();
  private static final TriggerEvent TRIGGER = new TriggerEvent();

  private JfrEvents() {}

  static boolean areCallsWanted() {
    return CALL.isEnabled();
  }

  static boolean areTriggersWanted() {
    return TRIGGER.isEnabled();
  }

  static void call(
      FlightRecorder recorder, long packed, long bytes, long elapsedNs, Outcome outcome) {
    CallEvent event = new CallEvent();
    event.rank = recorder.rank;
    event.lane = FlightRecorder.lane(packed);
    event.kind = recorder.name(packed, FlightRecorder.KIND);
    event.type = recorder.name(packed, FlightRecorder.TYPE);
    event.algorithm = recorder.name(packed, FlightRecorder.ALGORITHM);
    event.bytes = bytes;
    event.time = elapsedNs;
    event.outcome = outcome.name();
    event.waitedFor = recorder.waitedFor.getAsInt();
    event.commit();
  }

  static void setUp(int rank, int peer, String what, long elapsedNs, Throwable failure) {
    SetUpEvent event = new SetUpEvent();
    if (event.isEnabled()) {
      event.rank = rank;
      event.peer = peer;
      event.what = what;
      event.time = elapsedNs;
      event.failure = failure == null ? null : failure.getMessage();
      event.commit();
    }
  }

  static void failure(int rank, FluxCclException reason) {
    FailureEvent event = new FailureEvent();
    if (event.isEnabled()) {
      event.rank = rank;
      event.blamed = reason.rank();
      event.code = reason.code().name();
      event.message = reason.getMessage();
      event.commit();
    }
  }

  static void trigger(String proxy, long handled, long first, long second) {
    TriggerEvent event = new TriggerEvent();
    event.proxy = proxy;
    event.handled = handled;
    event.first = first;
    event.second = second;
    event.commit();
  }

  @Name("io.fluxccl.Call")
  @Label("Call")
  @Category("FluxCCL")
  @StackTrace(false)
  static final class CallEvent extends Event {
    @Label("Rank")
    int rank;

    @Label("Tag of the Lane")
    int lane;

    @Label("Kind")
    String kind;

    @Label("Type")
    String type;

    @Label("Algorithm")
    String algorithm;

    @Label("Bytes")
    @DataAmount
    long bytes;

    @Label("Time from Enqueueing to End")
    @Timespan
    long time;

    @Label("Outcome")
    String outcome;

    @Label("Rank Last Waited Long For")
    int waitedFor;
  }

  @Name("io.fluxccl.SetUp")
  @Label("Set-up")
  @Category("FluxCCL")
  @StackTrace(false)
  static final class SetUpEvent extends Event {
    @Label("Rank")
    int rank;

    @Label("Peer")
    int peer;

    @Label("What")
    String what;

    @Label("Time")
    @Timespan
    long time;

    @Label("Failure")
    String failure;
  }

  @Name("io.fluxccl.Failure")
  @Label("Failure")
  @Category("FluxCCL")
  @StackTrace(false)
  static final class FailureEvent extends Event {
    @Label("Rank")
    int rank;

    @Label("Rank to Blame")
    int blamed;

    @Label("Code")
    String code;

    @Label("Message")
    String message;
  }

  @Name("io.fluxccl.Trigger")
  @Label("Trigger of a Proxy (Sampled)")
  @Category("FluxCCL")
  @StackTrace(false)
  static final class TriggerEvent extends Event {
    @Label("Proxy")
    String proxy;

    @Label("Triggers Handled So Far")
    long handled;

    @Label("First Word")
    long first;

    @Label("Second Word")
    long second;
  }
}
