// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Decides when an end confirms the peer's messages, and when a link counts as lost because the peer
 * confirms nothing. A peer that is only slow does not lose its link: an end that can't continue to
 * read sends confirmations from time to time, and the system of a busy process acknowledges what it
 * receives. Confined to the agent, which calls it periodically; has no clock of its own.
 */
final class LinkLiveness {
  /** The next action of an end. */
  enum Action {
    NONE,
    CONFIRM,
    REPLACE
  }

  /** The time after which a message is confirmed, if no other message does so. */
  private static final long CONFIRM_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /**
   * The time between two confirmations of an end that can't continue to read, or that receives
   * nothing. The latter give the peer's system something to acknowledge.
   */
  private static final long SIGN_NS = TimeUnit.SECONDS.toNanos(1);

  /** The silence after which the link counts as lost, unless the peer's system acknowledges. */
  private static final long SILENCE_NS = TimeUnit.SECONDS.toNanos(5);

  /**
   * The silence after which the link counts as lost in any case: what acknowledges may be a proxy
   * between the ends. At most half of the time within which a lost link must be replaced.
   */
  private static final long LONGEST_SILENCE_NS = TimeUnit.SECONDS.toNanos(60);

  /**
   * A pause of this process is not silence of the peer: a longer step counts as one of this length.
   */
  private static final long LONGEST_STEP_NS = TimeUnit.MILLISECONDS.toNanos(100);

  /** A pause of this length ends the silence, because the peer may have waited for this process. */
  private static final long STALL_NS = TimeUnit.SECONDS.toNanos(1);

  private final Supplier<CompletableFuture<Boolean>> path;
  private final long longestSilenceNs;

  private long checkedNs;
  private long arrived;
  private long owingNs;
  private long heldUpNs;
  private long silentNs;

  /** The silence at which the last sign was sent. */
  private long signedNs;

  /** Whether the peer's system acknowledges; null if that was not asked. */
  private CompletableFuture<Boolean> answered;

  /** The silence at which that was asked. */
  private long askedNs;

  /**
   * Begins to watch a link.
   *
   * @param path asks whether the peer's system acknowledges what was sent
   * @param limitNs the time within which a lost link must be replaced
   */
  LinkLiveness(Supplier<CompletableFuture<Boolean>> path, long limitNs, long nowNs) {
    this.path = path;
    this.longestSilenceNs = Math.max(SILENCE_NS, Math.min(LONGEST_SILENCE_NS, limitNs / 2));
    this.checkedNs = nowNs;
  }

  /** Returns how long the peer has been silent, in nanoseconds. */
  long silentNs() {
    return silentNs;
  }

  /**
   * Checks the link.
   *
   * @param count the number of messages that have arrived
   * @param reads whether this end reads messages as they arrive
   * @param owes whether a message of the peer is not confirmed
   * @param awaits whether the peer has still to confirm a message
   */
  Action check(long nowNs, long count, boolean reads, boolean owes, boolean awaits) {
    long pause = nowNs - checkedNs;
    long step = Math.min(pause, LONGEST_STEP_NS);
    checkedNs = nowNs;
    owingNs = owes ? owingNs + step : 0;
    heldUpNs = reads ? 0 : heldUpNs + step;
    boolean isSilent = awaits && reads && count == arrived && pause < STALL_NS;
    arrived = count;
    silentNs = isSilent ? silentNs + step : 0;
    if (!isSilent) {
      signedNs = 0;
      answered = null;
    }
    if (silentNs > SILENCE_NS && isLost()) {
      return Action.REPLACE;
    }
    if (owingNs > CONFIRM_NS || heldUpNs > SIGN_NS || silentNs - signedNs > SIGN_NS) {
      owingNs = 0;
      heldUpNs = 0;
      signedNs = silentNs;
      return Action.CONFIRM;
    }
    return Action.NONE;
  }

  private boolean isLost() {
    if (answered == null || answered.isDone() && silentNs - askedNs > SIGN_NS) {
      answered = path.get();
      askedNs = silentNs;
    }
    return silentNs > longestSilenceNs || answered.isDone() && !answered.join();
  }
}
