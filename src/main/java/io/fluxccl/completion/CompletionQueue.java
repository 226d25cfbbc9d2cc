package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.agrona.concurrent.AtomicBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The futures and actions that wait for one stream. The stream's owner takes a number with {@link
 * #next()}, lets the stream store it into the queue's line behind the work enqueued so far, and
 * registers a future or an action; the {@link CompletionAgent} polls the line.
 *
 * <p>The line is one cache line of pinned memory: the number at its beginning, which only ever
 * grows, and nothing else in it.
 *
 * <p>Numbers are taken, enqueued and registered by one thread at a time, in this order; then
 * futures complete in the order of their numbers. Everything else is thread-safe.
 */
public final class CompletionQueue {
  /** Bytes of the line. */
  public static final int LINE_LENGTH = 64;

  /** Consecutive failed checks, a millisecond apart, after which the futures fail. */
  static final int MAX_FAILED_CHECKS = 1000;

  private static final Logger LOG = LoggerFactory.getLogger(CompletionQueue.class);

  private final String name;
  private final AtomicBuffer line;
  private final Milestones milestones;
  private final StreamHealth health;
  private final CompletionAgent agent;
  private final ConcurrentLinkedQueue<Waiter> waiters = new ConcurrentLinkedQueue<>();
  private volatile FluxCclException closedBecause;

  /** Written by the thread that takes numbers, one at a time. */
  private volatile long issued;

  /** The last answer of the milestones. Written by the agent's thread. */
  private volatile long passed;

  // All used by the agent's thread only.
  private DeviceFailure lost;
  private Throwable thrownByCheck;
  private int failedChecks;
  private Waiter oldestAtLastCheck;
  private long reached;

  /**
   * @param name of the stream, for diagnostics
   * @param line {@link #LINE_LENGTH} zeroed bytes that the stream can store to
   * @param milestones another way to learn the stream's progress
   * @param health tells whether the stream can still make progress
   * @param agent polls the line
   */
  CompletionQueue(
      String name,
      AtomicBuffer line,
      Milestones milestones,
      StreamHealth health,
      CompletionAgent agent) {
    this.name = name;
    this.line = line;
    this.milestones = milestones;
    this.health = health;
    this.agent = agent;
  }

  /**
   * Takes the next number, from 1. The stream must store it behind what is enqueued so far, or have
   * a milestone there.
   */
  public long next() {
    long next = issued + 1;
    issued = next;
    return next;
  }

  /** Returns the number taken last; 0 when there was none. */
  public long issued() {
    return issued;
  }

  /**
   * Returns the number that the stream is known to have reached. Acquire: what kernels wrote to
   * pinned memory before is visible. Not to be called once the line is freed.
   */
  public long reached() {
    // Pairs with the stream's store, which comes behind a system-wide barrier on the device.
    return Math.max(line.getLongAcquire(0), passed);
  }

  /**
   * Returns a future of a number.
   *
   * @param sequence what {@link #next()} gave; its store or milestone is enqueued
   * @return completes on the agent's thread when the stream has reached the number; with {@link
   *     DeviceFailure} if it can't reach it or can't be polled; or on the closing thread with the
   *     reason given to {@link #close}
   */
  public CompletableFuture<Void> register(long sequence) {
    Waiter waiter = Waiter.future(sequence);
    waiters.add(waiter);
    FluxCclException reason = closedBecause;
    if (reason != null) {
      waiter.closed(reason); // close() may have missed this one
    }
    agent.waiterAdded();
    return waiter.future;
  }

  /**
   * Runs an action on the agent's thread when the stream has reached a number, or can't reach it
   * any more; also after {@link #close}.
   *
   * @param sequence what {@link #next()} gave; its store or milestone is enqueued
   * @param action short; never blocks
   */
  public void afterwards(long sequence, Runnable action) {
    waiters.add(Waiter.action(sequence, action));
    agent.waiterAdded();
  }

  /**
   * Fails all futures, now and later, with the given reason. Actions still wait for their numbers.
   *
   * @param reason what the futures end with
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

  /** Removes the queue from its agent. Called once nothing waits, before the line is freed. */
  public void remove() {
    agent.remove(this);
  }

  /** Returns whether a future or an action waits. */
  boolean isPending() {
    return waiters.peek() != null;
  }

  /**
   * Completes what the stream has reached, and returns how many waiters that were. Called by the
   * agent's thread, as all below.
   */
  int poll() {
    Waiter oldest = waiters.peek();
    if (oldest == null) {
      return 0;
    }
    if (lost == null) {
      // A store that was overtaken by a later one must not take progress back.
      reached = Math.max(reached, reached());
      if (oldest.sequence > reached) {
        reached = askMilestones();
      }
    }
    int served = 0;
    while (oldest != null && (lost != null || oldest.sequence <= reached)) {
      waiters.poll();
      oldest.ended(oldest.sequence <= reached ? null : lost);
      served++;
      oldest = waiters.peek();
    }
    return served;
  }

  private long askMilestones() {
    long found = milestones.reached();
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
    DeviceFailure failure = health.failure();
    if (failure == null) {
      return 0;
    }
    reached = Math.max(reached, reached()); // its last progress
    reached = askMilestones();
    lost = failure;
    return poll();
  }

  /** Notes what a poll or a check threw. The next one may succeed: nothing that waits is lost. */
  void checkFailed(Throwable thrown) {
    boolean first = thrownByCheck == null && failedChecks == 0;
    thrownByCheck = thrown;
    if (first) {
      try {
        LOG.warn("polling the progress of {} failed; it is tried again", name, thrown);
      } catch (Throwable noMemory) {
        // The warning is lost; the next poll may succeed all the same.
      }
    }
  }

  /**
   * Fails the futures after too many checks in a row that threw. The stream may go on, so actions,
   * which free what its work uses, wait for it in any case.
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
}
