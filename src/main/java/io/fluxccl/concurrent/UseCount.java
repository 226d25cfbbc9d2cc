// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Counts the users of a shared resource: created with one user, released with the last. A resource
 * either extends this class and overrides {@link #lastUserLeft()}, or holds one. Thread-safe.
 */
public class UseCount {
  private final AtomicInteger users = new AtomicInteger(1);
  private final Runnable onLastUserLeft;

  /** For subclasses, which override {@link #lastUserLeft()}. */
  protected UseCount() {
    this(() -> {});
  }

  /**
   * Creates a count with one user.
   *
   * @param onLastUserLeft releases the resource; runs once, on the thread that releases last
   */
  public UseCount(Runnable onLastUserLeft) {
    this.onLastUserLeft = onLastUserLeft;
  }

  /** Releases the resource. Called once, on the thread that releases last; must not block. */
  protected void lastUserLeft() {
    onLastUserLeft.run();
  }

  /** Returns the number of users; 0 once the resource is released. */
  public final int users() {
    return users.get();
  }

  /**
   * Adds a user.
   *
   * @throws InvalidUsage if the resource is released already
   */
  public final void retain() {
    if (!tryRetain()) {
      throw InvalidUsage.of("%s is closed", this);
    }
  }

  /**
   * Adds a user unless the resource is released already.
   *
   * @return whether a user was added
   */
  public final boolean tryRetain() {
    int before;
    do {
      before = users.get();
      if (before == 0) {
        return false;
      }
    } while (!users.compareAndSet(before, before + 1));
    return true;
  }

  /**
   * Removes a user; the last one releases the resource. Does not block.
   *
   * @throws InvalidUsage if there is no user
   */
  public final void release() {
    int before;
    do {
      before = users.get();
      if (before == 0) {
        throw InvalidUsage.of("%s is released more often than it was retained", this);
      }
    } while (!users.compareAndSet(before, before - 1));
    if (before == 1) {
      lastUserLeft();
    }
  }
}
