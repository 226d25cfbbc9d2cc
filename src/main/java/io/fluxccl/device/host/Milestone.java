// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.concurrent.locks.LockSupport;

/** A point in a stream's work that one other stream waits for. Used once. */
final class Milestone implements StreamTask {
  private static final int YIELDS_BEFORE_PARKING = 100;

  private final LiveHostStream waiting;
  private volatile Thread parked;

  /** Published by {@link #passed}. */
  private FluxCclException failure;

  private volatile boolean passed;
  private volatile Milestone next;

  /**
   * A point that is not passed yet.
   *
   * @param waiting the stream that is to wait for it
   */
  Milestone(LiveHostStream waiting) {
    this.waiting = waiting;
  }

  @Override
  public void run(LiveHostStream stream) {
    pass(stream.failureFor(waiting));
  }

  /**
   * Returns true: a closed stream drops its work, but passes the milestone so that the waiting
   * stream continues.
   */
  @Override
  public boolean survivesClose() {
    return true;
  }

  @Override
  public boolean isWork() {
    return false;
  }

  /**
   * Marks the point as passed, so that the waiting stream continues. Any thread.
   *
   * @param because the reason why the earlier work is not reliable, or null
   */
  void pass(FluxCclException because) {
    failure = because;
    // A full fence between this store and the loads of parked and next. park() and passOn() store
    // these first and then load passed, so one of the two sees the other.
    passed = true;
    Thread thread = parked;
    if (thread != null) {
      LockSupport.unpark(thread);
    }
    Milestone then = next;
    if (then != null) {
      then.pass(null);
    }
  }

  /** Passes another milestone together with this one. */
  void passOn(Milestone then) {
    next = then;
    if (passed) { // pass() may have missed next; passing twice does no harm
      then.pass(null);
    }
  }

  /** Returns the reason given to {@link #pass}; valid once it has passed. */
  FluxCclException failure() {
    return failure;
  }

  /**
   * Waits on a stream's thread. The other stream may be waiting for a peer, so this polls as long
   * as {@link SpinPolicy} permits a kernel to poll, and then sleeps.
   *
   * @param stream the stream whose thread waits
   * @param evenWhenClosed whether to continue the wait if that stream is closed
   * @return whether it was passed
   */
  boolean await(LiveHostStream stream, boolean evenWhenClosed) {
    int polls = 0;
    while (!passed) {
      if (stream.isClosed() && !evenWhenClosed) {
        return false;
      }
      int allowed = SpinPolicy.pollsBeforeYield();
      if (polls < allowed) {
        Thread.onSpinWait();
        polls++;
      } else if (polls < allowed + YIELDS_BEFORE_PARKING) {
        Thread.yield();
        polls++;
      } else {
        park(stream, evenWhenClosed);
      }
    }
    return true;
  }

  private void park(LiveHostStream stream, boolean evenWhenClosed) {
    stream.releaseTeam();
    SpinPolicy.exit();
    Thread.interrupted(); // a kernel may have left it set; parking would return at once
    parked = Thread.currentThread();
    if (!passed && (evenWhenClosed || !stream.isClosed())) {
      LockSupport.park(this); // closing the stream unparks its thread
    }
    SpinPolicy.enter();
  }
}
