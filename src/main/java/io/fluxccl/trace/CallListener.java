// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

/** Receives the end of each call of a rank. */
@FunctionalInterface
public interface CallListener {
  /**
   * Called on the thread that completes the call; must not block, and should not allocate. A
   * listener that throws is logged and removed.
   *
   * @param kind the number of its name; {@link FlightRecorder#name}
   * @param bytes as in {@link CallRecord}
   * @param elapsedNs from its enqueueing to its end
   * @param outcome how it has ended
   */
  void ended(int kind, long bytes, long elapsedNs, Outcome outcome);
}
