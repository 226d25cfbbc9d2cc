package io.fluxccl.device;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/** Counts its users: made with one, let go with the last. Thread-safe. */
public abstract class RefCounted {
  private final AtomicInteger users = new AtomicInteger(1);

  /** Called once, by whoever releases last. Waits for nothing. */
  protected abstract void lastUserLeft();

  /** How many users it has; 0 once it is let go. */
  public int users() {
    return users.get();
  }

  /**
   * Adds a user.
   *
   * @throws InvalidUsage if it is let go already
   */
  public void retain() {
    if (!tryRetain()) {
      throw new InvalidUsage(this + " is closed");
    }
  }

  /**
   * Adds a user unless it is let go already.
   *
   * @return whether one was added
   */
  public boolean tryRetain() {
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
   * Takes a user away. The last one's call lets go; it waits for nothing.
   *
   * @throws InvalidUsage if it has none
   */
  public void release() {
    int before;
    do {
      before = users.get();
      if (before == 0) {
        throw new InvalidUsage(this + " is released more often than it was retained");
      }
    } while (!users.compareAndSet(before, before - 1));
    if (before == 1) {
      lastUserLeft();
    }
  }
}
