package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.agrona.concurrent.AtomicBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Who waits for one stream. The stream's owner takes a number with {@link #next()}, lets the stream
 * store it into the queue's line behind the work enqueued so far, and registers who wants to know;
 * the {@link CompletionAgent} looks at the line.
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

  /** Checks of the health in a row, since each of which a look threw: a second or more. */
  static final int MAX_TROUBLED_CHECKS = 1000;

  private static final Logger LOG = LoggerFactory.getLogger(CompletionQueue.class);

  private final String name;
  private final AtomicBuffer line;
  private final Milestones milestones;
  private final StreamHealth health;
  private final CompletionAgent agent;
  private final ConcurrentLinkedQueue<Waiter> waiters = new ConcurrentLinkedQueue<>();
  private volatile FluxCclException closedBecause;

  /** Written by whoever takes numbers, one thread at a time. */
  private volatile long issued;

  /** What the milestones told last. Written by the agent's thread. */
  private volatile long passed;

  // All used by the agent's thread only.
  private DeviceFailure lost;
  private Throwable trouble;
  private int troubledChecks;
  private Waiter oldestAtLastCheck;
  private long reached;

  /**
   * @param name of the stream, for diagnostics
   * @param line {@link #LINE_LENGTH} zeroed bytes that the stream can store to
   * @param milestones what else tells how far the stream is
   * @param health whether the stream can still get anywhere
   * @param agent who looks at the line
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
   * Takes the next number, from 1. The stream is to store it behind what is enqueued so far, or to
   * have a milestone there.
   */
  public long next() {
    long next = issued + 1;
    issued = next;
    return next;
  }

  /** The number taken last; 0 when there was none. */
  public long issued() {
    return issued;
  }

  /**
   * The number that the stream is known to have reached. Acquire: what kernels wrote to pinned
   * memory before is visible. Not to be called once the line is gone.
   */
  public long reached() {
    // Pairs with the stream's store, which comes behind a system-wide barrier on the device.
    return Math.max(line.getLongAcquire(0), passed);
  }

  /**
   * A future of a number.
   *
   * @param sequence what {@link #next()} gave; its store or milestone is enqueued
   * @return completes on the agent's thread when the stream is there, with {@link DeviceFailure} if
   *     it can't get there or nobody can tell, or on the closing thread with the reason given to
   *     {@link #close}
   */
  public CompletableFuture<Void> register(long sequence) {
    Waiter.Future waiter = new Waiter.Future(sequence);
    waiters.add(waiter);
    FluxCclException reason = closedBecause;
    if (reason != null) {
      waiter.closed(reason); // close() may have looked before this one was there
    }
    agent.wake();
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
    waiters.add(new Waiter.Action(sequence, action));
    agent.wake();
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

  /** Takes the queue from its agent; called once nobody waits, before the line is let go. */
  public void remove() {
    agent.remove(this);
  }

  /** Whether anybody waits. */
  boolean isPending() {
    return waiters.peek() != null;
  }

  /** Called by the agent's thread, as all below. Gives how many waiters it served. */
  int poll() {
    Waiter oldest = waiters.peek();
    if (oldest == null) {
      return 0;
    }
    if (lost == null) {
      // A store that was overtaken by a later one must not take progress back.
      reached = Math.max(reached, reached());
      if (oldest.sequence > reached) {
        reached = lookAtMilestones();
      }
    }
    int served = 0;
    while (oldest != null && (lost != null || oldest.sequence <= reached)) {
      waiters.poll();
      if (oldest.sequence <= reached) {
        oldest.reached();
      } else {
        oldest.failed(lost);
      }
      served++;
      oldest = waiters.peek();
    }
    return served;
  }

  private long lookAtMilestones() {
    long found = milestones.reached();
    if (found <= reached) {
      return reached;
    }
    passed = found;
    return found;
  }

  /** Asks for the stream's health if somebody has waited since the last time. */
  int checkHealth() {
    Waiter oldest = waiters.peek();
    if (oldest == null || oldest != oldestAtLastCheck) {
      oldestAtLastCheck = oldest;
      trouble = null;
      troubledChecks = 0;
      return 0;
    }
    checkTrouble();
    DeviceFailure failure = health.failure();
    if (failure == null) {
      return 0;
    }
    reached = Math.max(reached, reached()); // the last it got to
    reached = lookAtMilestones();
    lost = failure;
    return poll();
  }

  /** A look threw. The next one may not, and who waits misses nothing. */
  void lookFailed(Throwable thrown) {
    boolean first = trouble == null && troubledChecks == 0;
    trouble = thrown;
    if (first) {
      try {
        LOG.warn("looking how far {} is failed; it is tried again", name, thrown);
      } catch (Throwable noMemory) {
        // Then nobody is told; the next look may be better all the same.
      }
    }
  }

  /**
   * Ends the futures once looks have thrown for so long that they may do so for ever. The stream
   * may go on, so actions, which free what its work uses, wait for it in any case.
   */
  private void checkTrouble() {
    Throwable last = trouble;
    trouble = null;
    if (last == null) {
      troubledChecks = 0;
    } else if (++troubledChecks >= MAX_TROUBLED_CHECKS) {
      DeviceFailure failure =
          new DeviceFailure(
              0, "COMPLETION", "nobody can tell how far " + name + " is: " + last, last);
      troubledChecks = 0;
      endFutures(failure);
    }
  }

  @Override
  public String toString() {
    return "CompletionQueue(" + name + ", issued=" + issued + ")";
  }
}
