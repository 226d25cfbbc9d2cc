// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import java.util.concurrent.TimeUnit;

/**
 * Confirms the peer's messages, and detects a peer that confirms nothing. A peer that only can't
 * continue to read sends confirmations from time to time, so that its link does not count as lost.
 * Confined to the agent, which calls it periodically.
 */
final class LinkLiveness {
  /** The time after which a message is confirmed, if no other message does so. */
  private static final long CONFIRM_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** The time between two confirmations of an end that can't continue to read. */
  private static final long SIGN_NS = TimeUnit.SECONDS.toNanos(1);

  /** The silence after which the link counts as lost. */
  private static final long SILENCE_NS = TimeUnit.SECONDS.toNanos(5);

  /**
   * A pause of this process is not silence of the peer: a longer step counts as one of this length.
   */
  private static final long LONGEST_STEP_NS = TimeUnit.MILLISECONDS.toNanos(100);

  private long checkedNs = System.nanoTime();
  private long arrived;
  private long owingNs;
  private long heldUpNs;
  private long silentNs;

  /** Returns how long the peer has been silent, in nanoseconds. */
  long silentNs() {
    return silentNs;
  }

  /**
   * Sends confirmations that are due.
   *
   * @return whether the link counts as lost
   */
  boolean isLost(Inbound inbound, ControlSender outbound, long nowNs) {
    long step = Math.min(nowNs - checkedNs, LONGEST_STEP_NS);
    checkedNs = nowNs;
    owingNs = outbound.lastConfirmed() == inbound.received() ? 0 : owingNs + step;
    heldUpNs = inbound.isReading() ? 0 : heldUpNs + step;
    if (owingNs > CONFIRM_NS || heldUpNs > SIGN_NS) {
      outbound.confirm();
      owingNs = 0;
      heldUpNs = 0;
    }
    boolean waits = outbound.awaitsConfirmation() && inbound.isReading();
    silentNs = waits && inbound.arrived() == arrived ? silentNs + step : 0;
    arrived = inbound.arrived();
    return silentNs > SILENCE_NS;
  }
}
