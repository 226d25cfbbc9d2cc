package io.fluxccl.netplugin.vendor;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Stands before an object of a plugin, which one thread at a time may use and nobody once it is
 * closed: a call that came too late would read freed memory.
 */
final class CallGate {
  private static final int FREE = 0;
  private static final int IN_USE = 1;
  private static final int CLOSING = 2;
  private static final int CLOSED = 3;
  private static final long NAP_NS = TimeUnit.MICROSECONDS.toNanos(50);

  private final AtomicInteger state = new AtomicInteger();
  private final String what;
  private final Duration patience;

  /**
   * @param what stands behind it, for messages
   * @param patience how long {@link #close} waits for who is in
   */
  CallGate(String what, Duration patience) {
    this.what = what;
    this.patience = patience;
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
          isClosed()
              ? what + " is closed"
              : what + " is used by two threads at once; let one thread use it at a time");
    }
  }

  void exit() {
    state.setRelease(FREE);
  }

  /** Returns whether a thread is in. For tests. */
  boolean isInUse() {
    return state.get() == IN_USE;
  }

  /** Returns whether nobody is let in any more. */
  boolean isClosed() {
    return state.get() >= CLOSING;
  }

  /**
   * Lets nobody in any more, once who is in has left, and ends what stands behind it. Who comes
   * meanwhile waits for that, because the library must stay as long.
   *
   * @param end called once, by whoever is first
   * @return whether this call closed it
   * @throws Timeout if who is in does not leave: the gate is then as it was, and what stands behind
   *     it must be left alone. Also if its end does not return, or has had a Timeout itself
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
   * Waits until no call of a plugin is under way.
   *
   * @param returned whether that is so
   * @param what the call is of, for the message
   * @throws Timeout if it is not so in time
   */
  static void awaitReturn(BooleanSupplier returned, String what, Duration patience) {
    Deadline deadline = Deadline.after(patience);
    while (!returned.getAsBoolean()) {
      if (deadline.expired()) {
        throw new Timeout(
            FluxCclException.NO_RANK,
            String.format(
                "close of %s: a call of it has not returned within %s ms; it is left as it"
                    + " is, and its library stays loaded",
                what, patience.toMillis()));
      }
      LockSupport.parkNanos(NAP_NS);
    }
  }

  /** Returns what stands behind it. */
  @Override
  public String toString() {
    return what;
  }
}
