// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Guards an object of a plugin. One thread at a time may use the object, and none after it is
 * closed: a later call would read freed memory.
 */
final class PluginCallLock {
  private static final int FREE = 0;
  private static final int IN_USE = 1;
  private static final int CLOSING = 2;
  private static final int CLOSED = 3;
  private static final long NAP_NS = TimeUnit.MICROSECONDS.toNanos(50);

  private final AtomicInteger state = new AtomicInteger();
  private final String what;
  private final Duration patience;

  /**
   * Creates an open gate.
   *
   * @param what the name of the object, for messages
   * @param patience the time that {@link #close} waits for a call in progress
   */
  PluginCallLock(String what, Duration patience) {
    this.what = what;
    this.patience = patience;
  }

  /**
   * Enters the gate until {@link #exit()}.
   *
   * @throws InvalidUsage if the gate is closed, or another thread is inside
   */
  void enter() {
    // Acquire: pairs with the release in exit().
    if (!state.compareAndSet(FREE, IN_USE)) {
      throw new InvalidUsage(
          isClosed()
              ? what + " is closed"
              : what + " is used by two threads at once; let one thread use it at a time");
    }
  }

  void exit() {
    state.setRelease(FREE);
  }

  /** Returns whether a thread is inside. Only tests call this. */
  boolean isInUse() {
    return state.get() == IN_USE;
  }

  /** Returns whether the gate is closed or closing, so that no thread can enter. */
  boolean isClosed() {
    return state.get() >= CLOSING;
  }

  /**
   * Waits until the call in progress has returned, then closes the gate and runs {@code end} to
   * free the object. Concurrent closes wait until then, because the library must stay loaded.
   *
   * @param end frees the object; the first close runs it, once
   * @return whether this call closed the gate
   * @throws Timeout if the call in progress does not return in time. The gate then stays as it was,
   *     and the object must not be freed. Also thrown if {@code end} does not return, or throws a
   *     Timeout itself
   */
  boolean close(Runnable end) {
    boolean[] first = new boolean[1];
    awaitReturn(
        () -> {
          first[0] = state.compareAndSet(FREE, CLOSING);
          return first[0] || state.get() == CLOSED;
        },
        what,
        patience);
    if (first[0]) {
      boolean stuck = false;
      try {
        end.run();
      } catch (Timeout e) {
        stuck = true;
        throw e;
      } finally {
        if (!stuck) {
          state.set(CLOSED);
        }
      }
    }
    return first[0];
  }

  /**
   * Waits until no call of a plugin is in progress.
   *
   * @param returned returns whether all calls have returned
   * @param what the name of the object that the call uses, for the message
   * @param patience the longest time to wait
   * @throws Timeout if a call has not returned in time
   */
  static void awaitReturn(BooleanSupplier returned, String what, Duration patience) {
    Deadline deadline = Deadline.after(patience);
    while (!returned.getAsBoolean()) {
      if (deadline.expired()) {
        throw new Timeout(
            FluxCclException.NO_RANK,
            Text.of(
                "close of %s: a call of it has not returned within %s ms; it is left as it"
                    + " is, and its library stays loaded",
                what, patience.toMillis()));
      }
      LockSupport.parkNanos(NAP_NS);
    }
  }

  /** Returns the name of the object. */
  @Override
  public String toString() {
    return what;
  }
}
