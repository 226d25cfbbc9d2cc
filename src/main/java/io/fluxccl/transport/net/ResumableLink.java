// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;

/**
 * A link that both ends can replace when it is lost. After {@link #restart}, {@link #poll} connects
 * again, and each end learns how many messages the other one has received in full. The number of
 * messages sent and taken restarts at 0.
 */
public interface ResumableLink extends Link {
  /** Returns whether the peer has begun to replace the link. Called while the link is open. */
  boolean isChallenged();

  /**
   * Closes the link and begins to replace it.
   *
   * @param received the number of messages that this end has received in full
   */
  void restart(long received, long nowNs);

  /** Returns the number of messages that the peer had received in full when the link was opened. */
  long peersCount();

  /** Returns why the last attempt to replace the link failed, or null. */
  FluxCclException hindrance();

  /**
   * Asks whether the peer's system acknowledges what this end has sent. It does so even while the
   * peer's process is too busy to read.
   *
   * @return completes within milliseconds, on any thread; with false also if this can't be known
   */
  CompletableFuture<Boolean> isAnswered();
}
