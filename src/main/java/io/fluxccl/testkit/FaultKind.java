// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;

/** The effect of a fault on a message, on the link that carries it, or on its sender. */
@Experimental
public enum FaultKind {
  /** The message is lost. Only on links with checksums; others can't detect it. */
  DROP(true),
  /** The message arrives twice. Only on links with checksums; others can't detect it. */
  DUPLICATE(true),
  /** The message arrives after the next one. Only on links with checksums. */
  REORDER(true),
  /** One byte of the message is changed. Only on links with checksums; others can't detect it. */
  CORRUPT(true),
  /** The message, and all after it on its link, arrive 1 to 50 ms later. */
  DELAY(false),
  /** The message, and all after it, are lost until the link is replaced. */
  SILENCE(false),
  /** The link's sockets are closed instead of sending the message. */
  CUT(false),
  /** The sending rank dies instead of sending the message. */
  KILL(false);

  private final boolean needsChecksums;

  FaultKind(boolean needsChecksums) {
    this.needsChecksums = needsChecksums;
  }

  /**
   * Returns whether only the checksums of messages reveal the fault. TCP by itself does no such
   * thing to a message: a cable, a switch or a middlebox may.
   */
  public boolean needsChecksums() {
    return needsChecksums;
  }
}
