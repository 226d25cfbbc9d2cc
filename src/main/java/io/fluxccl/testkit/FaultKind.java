// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;

/** What happens to a message, to the link that carries it, or to its sender. */
@Experimental
public enum FaultKind {
  /** The message is lost. Only where links have checksums; others can't tell. */
  DROP(true),
  /** The message arrives twice. Only where links have checksums; others can't tell. */
  DUPLICATE(true),
  /** The message arrives behind the next one. Only where links have checksums. */
  REORDER(true),
  /** One byte of the message is changed. Only where links have checksums; others can't tell. */
  CORRUPT(true),
  /** The message, and all behind it on its link, arrive 1 to 50 ms later. */
  DELAY(false),
  /** The message, and all behind it, are lost until the link is replaced. */
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
