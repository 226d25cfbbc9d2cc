// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Counts the users of a shared resource: created with one user, released with the last. A resource
 * either extends this class and overrides {@link #lastUserLeft()}, or holds one. After {@link
 * #beginClose()}, {@link #enter()} adds no more users, and the resource stays open until those that
 * are inside have left. Never waits; thread-safe.
 */
public class UseCount {
  /** Set in the count after a close. */
  private static final int CLOSED = 1 << 31;

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
    return used(users.get());
  }

  private static int used(int count) {
    return count & ~CLOSED;
  }

  /** Returns whether {@link #beginClose()} was called. */
  public final boolean isClosed() {
    return users.get() < 0;
  }

  /**
   * Adds a user unless the resource was closed or released.
   *
   * @return whether a user was added
   */
  public final boolean enter() {
    return users.getAndUpdate(count -> count <= 0 ? count : count + 1) > 0;
  }

  /**
   * Begins to close the resource: {@link #enter()} refuses users from now on.
   *
   * @return true for the first caller only, which then releases the first user
   */
  public final boolean beginClose() {
    return users.getAndUpdate(count -> count | CLOSED) >= 0;
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
    return used(users.getAndUpdate(count -> used(count) == 0 ? count : count + 1)) > 0;
  }

  /**
   * Removes a user; the last one releases the resource. Does not block.
   *
   * @throws InvalidUsage if there is no user
   */
  public final void release() {
    int before = used(users.getAndUpdate(count -> used(count) == 0 ? count : count - 1));
    if (before == 0) {
      throw InvalidUsage.of("%s is released more often than it was retained", this);
    }
    if (before == 1) {
      lastUserLeft();
    }
  }
}
