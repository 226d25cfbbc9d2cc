package io.fluxccl.netplugin.vendor;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Stands before an object of a plugin, which one thread at a time may use and nobody once it is
 * closed: a call that came too late would read freed memory.
 */
final class CallGate {
  private static final int FREE = 0;
  private static final int IN_USE = 1;
  private static final int CLOSED = 2;

  private final AtomicInteger state = new AtomicInteger();
  private final String what;

  /**
   * @param what stands behind it, for messages
   */
  CallGate(String what) {
    this.what = what;
  }

  /**
   * Lets the caller in until {@link #exit()}.
   *
   * @throws InvalidUsage if it is closed, or another thread is in
   */
  void enter() {
    // Acquire: pairs with the release in exit().
    if (!state.compareAndSet(FREE, IN_USE)) {
      throw new InvalidUsage(
          state.get() == CLOSED
              ? what + " is closed"
              : what + " is used by two threads at once; let one thread use it at a time");
    }
  }

  void exit() {
    state.setRelease(FREE);
  }

  boolean isClosed() {
    return state.get() == CLOSED;
  }

  /**
   * Lets nobody in any more, once who is in has left.
   *
   * @return whether this call closed it
   */
  boolean close() {
    while (!state.compareAndSet(FREE, CLOSED)) {
      if (state.get() == CLOSED) {
        return false;
      }
      Thread.yield();
    }
    return true;
  }
}
