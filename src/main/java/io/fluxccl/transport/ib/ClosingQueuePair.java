// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.concurrent.Closing;
import java.io.IOException;
import java.time.Duration;

/**
 * A queue pair of a connection that was closed here. It stays open until the peer has acknowledged
 * the final message, at most half a second. Confined to the agent.
 */
final class ClosingQueuePair implements AutoCloseable {
  private static final Duration LIMIT = Duration.ofMillis(500);

  private final VerbsLink link;
  private final ControlWords words;
  private final Deadline deadline = Deadline.after(LIMIT);

  /** Takes over a queue pair whose only request in flight is the final message. */
  ClosingQueuePair(VerbsLink link, ControlWords words) {
    this.link = link;
    this.words = words;
  }

  /** Returns whether the final message has arrived, has failed, or is late. */
  boolean isDone() {
    return deadline.expired() || hasCompletion();
  }

  @Override
  public void close() {
    Closing.all(link, words);
  }

  private boolean hasCompletion() {
    try {
      return link.poll() > 0;
    } catch (IOException | RuntimeException e) {
      return true; // the device has failed
    }
  }
}
