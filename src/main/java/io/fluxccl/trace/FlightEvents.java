// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.FluxCclException;

/**
 * The library's events for JDK Flight Recorder. Does nothing in a Java runtime without the module
 * jdk.jfr; an event that no recording has enabled costs one check of a flag. Thread-safe.
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
    if (PRESENT && JfrEvents.areCallsWanted()) {
      JfrEvents.call(recorder, packed, bytes, elapsedNs, outcome);
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
    if (PRESENT) {
      JfrEvents.setUp(rank, peer, what, elapsedNs, failure);
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
      JfrEvents.failure(rank, reason);
    }
  }

  /** Returns whether a recording wants triggers. Allocates nothing. */
  public static boolean areTriggersWanted() {
    return PRESENT && JfrEvents.areTriggersWanted();
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
    JfrEvents.trigger(proxy, handled, first, second);
  }
}
