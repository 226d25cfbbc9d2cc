// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import java.time.Duration;

/**
 * How long a rank tolerates an answer at the job's address that is not the job's. An earlier job
 * may be about to release the port, and rank 0 tries to bind it for as long. Nobody can prove to a
 * rank with another secret that he refuses it in the job's name, so a single refusal, which may be
 * forged, fails no rank. Only on the event loop.
 */
final class Patience {
  private static final int SHARE_OF_TIMEOUT = 4;

  /** How long one that was connected may take to connect again before it counts as dead. */
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

  /** Learns of such an answer; returns whether it is the first one in a row. */
  boolean begins() {
    boolean first = !began;
    if (first) {
      began = true;
      beganNanos = System.nanoTime();
    }
    return first;
  }

  /** Returns whether there were only such answers for too long. */
  boolean isOver() {
    return began && System.nanoTime() - beganNanos >= nanos;
  }

  /** Learns of another answer. */
  void reset() {
    began = false;
  }
}
