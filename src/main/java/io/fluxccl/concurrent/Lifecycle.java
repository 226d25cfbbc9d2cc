// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The state of an object that opens and closes: OPEN, FAILED with its first reason, CLOSING,
 * CLOSED. It owns children, which it closes in reverse order. Owners hold one and keep no closed or
 * failed flags of their own; a resource that also waits for its users holds a {@link UseCount}.
 * Thread-safe; {@link #isOpen()} and {@link #checkOpen()} allocate nothing while open and take no
 * lock.
 *
 * <pre>
 *   OPEN ──fail──► FAILED ──beginClose──► CLOSING ──closeChildren──► CLOSED
 *     └────────────beginClose───────────────┘
 * </pre>
 */
public final class Lifecycle implements AutoCloseable {
  /** The states of an object. */
  public enum State {
    /** In use. */
    OPEN,
    /** Failed, and not closed yet: every operation throws the first failure. */
    FAILED,
    /** Being closed: new operations are refused, children are being closed. */
    CLOSING,
    /** Closed, and all children with it. */
    CLOSED
  }

  private final Object owner;
  private final AtomicReference<State> state = new AtomicReference<>(State.OPEN);
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> failed = NonblockingFuture.create();

  // Guarded by this; null once they are being closed.
  private List<AutoCloseable> children = new ArrayList<>();

  /**
   * Creates one in state OPEN.
   *
   * @param owner the object whose states these are, or its name; messages contain its text
   */
  public Lifecycle(Object owner) {
    this.owner = owner;
  }

  /** Returns the current state. */
  public State state() {
    return state.get();
  }

  /** Returns whether the owner is open and has not failed. */
  public boolean isOpen() {
    return state.get() == State.OPEN;
  }

  /** Returns whether the owner is closing or closed. */
  public boolean isClosed() {
    State current = state.get();
    return current == State.CLOSING || current == State.CLOSED;
  }

  /**
   * Refuses an operation unless the owner is open.
   *
   * @throws FluxCclException the first failure again, if there is one
   * @throws InvalidUsage if the owner was closed without a failure
   */
  public void checkOpen() {
    if (state.get() != State.OPEN) {
      FluxCclException reason = failure.get();
      throw reason != null ? reason.again() : InvalidUsage.of("%s is closed", owner);
    }
  }

  /** Returns the first failure, or null. */
  public FluxCclException failure() {
    return failure.get();
  }

  /**
   * Records the first failure, also while closing. The caller then stops all work in flight, and
   * finally calls {@link #announceFailure()}.
   *
   * @param reason why the owner failed
   * @return whether this is the first failure, and the owner was not closed before
   */
  public boolean fail(FluxCclException reason) {
    if (state.get() == State.CLOSED || !failure.compareAndSet(null, reason)) {
      return false;
    }
    state.compareAndSet(State.OPEN, State.FAILED);
    return true;
  }

  /** Completes {@link #failed()} with the first failure, if there is one. */
  public void announceFailure() {
    FluxCclException reason = failure.get();
    if (reason != null) {
      failed.complete(reason);
    }
  }

  /** Returns a new future that completes with the first failure once it is announced. */
  public CompletableFuture<FluxCclException> failed() {
    return failed.copy();
  }

  /**
   * Adds a child, which is closed with the owner, before all children that were added earlier.
   *
   * @param child closed at once if the owner is closing or closed
   * @return the child
   * @throws FluxCclException as {@link #checkOpen()}, if the owner is closing or closed
   */
  public <T extends AutoCloseable> T own(T child) {
    synchronized (this) {
      if (children != null) {
        children.add(child);
        return child;
      }
    }
    Closing.all(child);
    FluxCclException reason = failure.get();
    throw reason != null ? reason.again() : InvalidUsage.of("%s is closed", owner);
  }

  /**
   * Removes a child that was closed separately.
   *
   * @return whether the child was owned until now
   */
  public synchronized boolean disown(AutoCloseable child) {
    return children != null && children.removeIf(owned -> owned == child);
  }

  /**
   * Begins to close: new operations are refused from now on.
   *
   * @return true for the first caller only, which then calls {@link #closeChildren()}
   */
  public boolean beginClose() {
    return state.compareAndSet(State.OPEN, State.CLOSING)
        || state.compareAndSet(State.FAILED, State.CLOSING);
  }

  /**
   * Closes all children, the youngest first, even if closing one throws; then sets the state to
   * CLOSED. Throws the first failure, with later ones as suppressed exceptions.
   */
  public void closeChildren() {
    List<AutoCloseable> closing;
    synchronized (this) {
      closing = children == null ? List.of() : children;
      children = null;
    }
    Collections.reverse(closing);
    try {
      Closing.all(closing);
    } finally {
      state.set(State.CLOSED);
    }
  }

  /** Closes all children if no other caller has begun to close. Idempotent. */
  @Override
  public void close() {
    if (beginClose()) {
      closeChildren();
    }
  }

  @Override
  public String toString() {
    FluxCclException reason = failure.get();
    return owner + " " + state.get() + (reason == null ? "" : " (" + reason.getMessage() + ")");
  }
}
