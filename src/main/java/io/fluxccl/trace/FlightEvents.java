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

/**
 * The library's events for JDK Flight Recorder. Does nothing in a Java runtime without the module
 * jdk.jfr, and loads no class of an event there. An event that no recording has enabled costs one
 * check of a flag. Thread-safe.
 *
 * <p>{@code io.fluxccl.Call}: the end of each call. {@code io.fluxccl.SetUp}: the end of each
 * set-up with a peer. {@code io.fluxccl.Failure}: a communicator has failed. {@code
 * io.fluxccl.Trigger}: one in {@value #TRIGGER_SAMPLE} triggers that a proxy has handled.
 */
public final class FlightEvents {
  /** A proxy makes an event of one in this many triggers: a power of two. */
  public static final int TRIGGER_SAMPLE = 1024;

  private static final boolean PRESENT = ModuleLayer.boot().findModule("jdk.jfr").isPresent();

  private FlightEvents() {}

  static void call(
      FlightRecorder recorder, long packed, long bytes, long elapsedNs, Outcome outcome) {
    if (PRESENT && CallEvent.SAMPLE.isEnabled()) {
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
  }

  /**
   * Makes an event of a set-up that has ended.
   *
   * @param rank this rank
   * @param peer the other one, or {@link FluxCclException#NO_RANK}
   * @param what was set up
   * @param elapsedNs since it began
   * @param failure why it failed; null if it did not
   */
  public static void setUp(int rank, int peer, String what, long elapsedNs, Throwable failure) {
    if (PRESENT && SetUpEvent.SAMPLE.isEnabled()) {
      SetUpEvent event = new SetUpEvent();
      event.rank = rank;
      event.peer = peer;
      event.what = what;
      event.time = elapsedNs;
      event.failure = failure == null ? null : failure.getMessage();
      event.commit();
    }
  }

  /**
   * Makes an event of the failure of a communicator.
   *
   * @param rank this rank
   * @param reason why
   */
  public static void failure(int rank, FluxCclException reason) {
    if (PRESENT) {
      FailureEvent event = new FailureEvent();
      event.rank = rank;
      event.blamed = reason.rank();
      event.code = reason.code().name();
      event.message = reason.getMessage();
      event.commit();
    }
  }

  /** Returns whether a recording wants triggers. Allocates nothing. */
  public static boolean areTriggersWanted() {
    return PRESENT && TriggerEvent.SAMPLE.isEnabled();
  }

  /**
   * Makes an event of a trigger, if {@link #areTriggersWanted}.
   *
   * @param proxy the name of the proxy
   * @param handled how many triggers this FIFO's proxy has handled
   * @param first the trigger's first word
   * @param second its second word
   */
  public static void trigger(String proxy, long handled, long first, long second) {
    TriggerEvent event = new TriggerEvent();
    event.proxy = proxy;
    event.handled = handled;
    event.first = first;
    event.second = second;
    event.commit();
  }

  @Category("FluxCCL")
  @StackTrace(false)
  abstract static class FluxEvent extends Event {}

  @Name("io.fluxccl.Call")
  @Label("Call")
  static final class CallEvent extends FluxEvent {
    static final CallEvent SAMPLE = new CallEvent();

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
  static final class SetUpEvent extends FluxEvent {
    static final SetUpEvent SAMPLE = new SetUpEvent();

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
  static final class FailureEvent extends FluxEvent {
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
  static final class TriggerEvent extends FluxEvent {
    static final TriggerEvent SAMPLE = new TriggerEvent();

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
