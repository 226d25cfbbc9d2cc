// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.agrona.concurrent.AtomicBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The futures and actions that wait for one stream. The stream's owner takes a number with {@link
 * #next()} and enqueues a store of it into the queue's line, after the work enqueued so far. Then
 * it registers a future or an action. The {@link CompletionAgent} polls the line.
 *
 * <p>The line is one cache line of pinned memory. It holds only the number, at its beginning, which
 * never decreases.
 *
 * <p>One thread at a time takes, enqueues and registers numbers, in this order. Then futures
 * complete in the order of their numbers. Everything else is thread-safe.
 */
public final class CompletionQueue {
  /** The length of the line in bytes. */
  public static final int LINE_LENGTH = 64;

  /** The number of consecutive failed checks, 100 ms apart, after which the futures fail. */
  static final int MAX_FAILED_CHECKS = 10;

  private static final Logger LOG = LoggerFactory.getLogger(CompletionQueue.class);

  private final String name;
  private final AtomicBuffer line;
  private final LongSupplier progressSource;
  private final Supplier<DeviceFailure> health;
  private final CompletionAgent agent;
  private final ConcurrentLinkedQueue<Waiter> waiters = new ConcurrentLinkedQueue<>();
  private volatile FluxCclException closedBecause;

  /** The number taken last. Written by one thread at a time, which takes numbers. */
  private volatile long issued;

  /** The last progress that the progress source returned. Written by the agent's thread. */
  private volatile long passed;

  // Used by the agent's thread only.
  private DeviceFailure lost;
  private Throwable thrownByCheck;
  private int failedChecks;
  private Waiter oldestAtLastCheck;
  private long reached;

  /**
   * Creates a queue without waiters.
   *
   * @param name the stream's name, for diagnostics
   * @param line {@link #LINE_LENGTH} zeroed bytes that the stream can store to
   * @param progressSource as in {@link CompletionAgent#createQueue}
   * @param health as in {@link CompletionAgent#createQueue}
   * @param agent the agent that polls the line
   */
  CompletionQueue(
      String name,
      AtomicBuffer line,
      LongSupplier progressSource,
      Supplier<DeviceFailure> health,
      CompletionAgent agent) {
    this.name = name;
    this.line = line;
    this.progressSource = progressSource;
    this.health = health;
    this.agent = agent;
  }

  /**
   * Takes and returns the next number, from 1. The stream must store it after the work enqueued so
   * far, or have a milestone there.
   */
  public long next() {
    long next = issued + 1;
    issued = next;
    return next;
  }

  /** Returns the number taken last, or 0 if there is none. */
  public long issued() {
    return issued;
  }

  /**
   * Returns the number that the stream is known to have reached. Acquire: all that kernels wrote to
   * pinned memory before is visible. Must not be called once the line is freed.
   */
  public long reached() {
    // Acquire: pairs with the stream's store, which follows a system-wide barrier on the device.
    return Math.max(line.getLongAcquire(0), passed);
  }

  /**
   * Returns a future that completes when the stream reaches a number.
   *
   * @param sequence a result of {@link #next()}, whose store or milestone is enqueued
   * @return a future that completes on the agent's thread when the stream has reached the number.
   *     It fails with {@link DeviceFailure} if the stream can't reach the number or can't be
   *     polled. After {@link #close} it fails on the closing thread, with the reason given there
   */
  public CompletableFuture<Void> register(long sequence) {
    Waiter waiter = new Waiter(sequence, NonblockingFuture.create(), null);
    waiters.add(waiter);
    FluxCclException reason = closedBecause;
    if (reason != null) {
      waiter.closed(reason); // close() may have missed this one
    }
    agent.waiterAdded();
    return waiter.future;
  }

  /**
   * Runs an action on the agent's thread when the stream has reached a number or can't reach it any
   * more, even after {@link #close}.
   *
   * @param sequence a result of {@link #next()}, whose store or milestone is enqueued
   * @param action the action, which must be short and must not block
   */
  public void afterwards(long sequence, Runnable action) {
    waiters.add(new Waiter(sequence, null, action));
    agent.waiterAdded();
  }

  /**
   * Fails all futures, including those registered later, with the given reason. Actions still wait
   * for their numbers.
   *
   * @param reason the failure of the futures
   */
  public void close(FluxCclException reason) {
    closedBecause = reason;
    endFutures(reason);
  }

  private void endFutures(FluxCclException reason) {
    for (Waiter waiter : waiters) {
      waiter.closed(reason);
    }
  }

  /** Removes the queue from its agent. Called once there is no waiter, before the line is freed. */
  public void remove() {
    agent.remove(this);
  }

  /** Returns whether a future or an action waits. Any thread. */
  public boolean isPending() {
    return waiters.peek() != null;
  }

  /**
   * Completes the waiters whose number the stream has reached, and returns how many. The agent's
   * thread calls this method and those below.
   */
  int poll() {
    Waiter oldest = waiters.peek();
    if (oldest == null) {
      return 0;
    }
    if (lost == null) {
      // A store that a later one has overtaken must not decrease the progress.
      reached = Math.max(reached, reached());
      if (oldest.sequence > reached) {
        reached = askMilestones();
      }
    }
    int served = 0;
    while (oldest != null && (lost != null || oldest.sequence <= reached)) {
      try {
        oldest.ended(oldest.sequence <= reached ? null : lost);
      } finally {
        waiters.poll(); // not before its future is complete: other threads ask isPending()
      }
      served++;
      oldest = waiters.peek();
    }
    return served;
  }

  private long askMilestones() {
    long found = progressSource.getAsLong();
    if (found <= reached) {
      return reached;
    }
    passed = found;
    return found;
  }

  /** Checks the stream's health if its oldest waiter has waited since the last check. */
  int checkHealth() {
    Waiter oldest = waiters.peek();
    if (oldest == null || oldest != oldestAtLastCheck) {
      oldestAtLastCheck = oldest;
      thrownByCheck = null;
      failedChecks = 0;
      return 0;
    }
    countFailedChecks();
    DeviceFailure failure = health.get();
    if (failure == null) {
      return 0;
    }
    reached = Math.max(reached, reached()); // its last progress
    reached = askMilestones();
    lost = failure;
    return poll();
  }

  /**
   * Records the exception of a poll or a check. No waiter is lost, because the next poll may
   * succeed.
   */
  void checkFailed(Throwable thrown) {
    boolean first = thrownByCheck == null && failedChecks == 0;
    thrownByCheck = thrown;
    if (first) {
      try {
        LOG.warn("polling the progress of {} failed; it is tried again", name, thrown);
      } catch (Throwable noMemory) {
        // The warning is lost; the next poll may still succeed.
      }
    }
  }

  /**
   * Fails the futures after too many failed checks in a row. The stream may still be running, so
   * actions, which free its resources, continue to wait for it.
   */
  private void countFailedChecks() {
    Throwable last = thrownByCheck;
    thrownByCheck = null;
    if (last == null) {
      failedChecks = 0;
    } else if (++failedChecks >= MAX_FAILED_CHECKS) {
      DeviceFailure failure =
          new DeviceFailure(
              0, "COMPLETION", "the progress of " + name + " can't be polled: " + last, last);
      failedChecks = 0;
      endFutures(failure);
    }
  }

  @Override
  public String toString() {
    return "CompletionQueue(" + name + ", issued=" + issued + ")";
  }

  /**
   * A future or an action that waits until a queue's stream has reached a sequence number. An
   * action always runs, after the stream has reached the number or has failed.
   */
  private static final class Waiter {
    private final long sequence;

    /** Null for an action. */
    private final CompletableFuture<Void> future;

    private final Runnable action;

    Waiter(long sequence, CompletableFuture<Void> future, Runnable action) {
      this.sequence = sequence;
      this.future = future;
      this.action = action;
    }

    /**
     * Completes the future or runs the action. Called when the stream has reached the number or has
     * failed.
     *
     * @param failure the stream's failure, or null
     */
    private void ended(FluxCclException failure) {
      if (future == null) {
        try {
          action.run();
        } catch (RuntimeException | Error e) {
          // The thread serves all streams of the device; one failing action must not stop it.
          LOG.error("callback after enqueued work failed; the completion thread continues", e);
        }
      } else if (failure == null) {
        future.complete(null);
      } else {
        future.completeExceptionally(failure);
      }
    }

    /** Fails the future; an action still waits. Called when the queue is closed. */
    private void closed(FluxCclException reason) {
      if (future != null) {
        future.completeExceptionally(reason);
      }
    }
  }
}
