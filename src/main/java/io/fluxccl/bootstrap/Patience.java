// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import java.time.Duration;

/**
 * Limits how long a rank retries while another service answers at the job's address. An earlier job
 * may be about to release the port, and rank 0 retries its bind for a similar time. A refusal under
 * a different secret cannot be authenticated and may be forged. A rank therefore fails only if
 * refusals persist. Only on the event loop.
 */
final class Patience {
  private static final int SHARE_OF_TIMEOUT = 4;

  /** The time in which a rank that was connected must reconnect before it counts as dead. */
  static final long RETURN_MILLIS = 1000;

  private final long nanos;
  private boolean began;
  private long beganNanos;

  /**
   * @param timeout within which the rank must have joined
   */
  Patience(Duration timeout) {
    nanos = Math.min(Rendezvous.BIND_RETRY_NANOS, timeout.toNanos() / SHARE_OF_TIMEOUT);
  }

  /** Records such an answer; returns whether it is the first one in a row. */
  boolean begins() {
    boolean first = !began;
    if (first) {
      began = true;
      beganNanos = System.nanoTime();
    }
    return first;
  }

  /** Returns whether all answers have been such answers for too long. */
  boolean isOver() {
    return began && System.nanoTime() - beganNanos >= nanos;
  }

  /** Records any other answer, which ends the row. */
  void reset() {
    began = false;
  }
}
