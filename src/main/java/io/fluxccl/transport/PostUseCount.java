// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.UseCount;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * For transports: counts the posts that use a resource. After close, new posts are refused. The
 * last user frees the resource, so it stays open under every post that uses it. Never waits;
 * thread-safe.
 */
@Experimental
public class PostUseCount extends UseCount implements AutoCloseable {
  private final AtomicBoolean closed = new AtomicBoolean();

  /** Creates an open count, for subclasses that override {@link #lastUserLeft()}. */
  protected PostUseCount() {}

  /**
   * Creates an open count without users.
   *
   * @param free frees the resource; runs once, on the closing thread or the last user's thread
   */
  public PostUseCount(Runnable free) {
    super(free);
  }

  /**
   * Keeps the resource open until {@link #release()}, unless it is closed. A thread that loses a
   * race with {@link #close()} may still enter while another user keeps the resource.
   *
   * @return whether the resource was open
   */
  public final boolean enter() {
    return !closed.get() && tryRetain();
  }

  /** Returns whether the resource was closed. */
  public final boolean isClosed() {
    return closed.get();
  }

  /** Closes the resource for new users, and frees it once it has no user. Idempotent. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      try {
        closing();
      } finally {
        release();
      }
    }
  }

  /** Called once new users are refused, before the resource can be freed. */
  protected void closing() {}
}
