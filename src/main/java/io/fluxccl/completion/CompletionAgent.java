// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.agrona.collections.ArrayUtil;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.NanoClock;
import org.agrona.concurrent.SystemNanoClock;

/**
 * The thread that polls the lines of a device's streams and completes their waiters. It starts with
 * the first waiter. It spins for {@value #SPIN_MICROS} us after each completion. While there is a
 * waiter, it then sleeps for up to {@value #LONGEST_NAP_MICROS} us at a time; otherwise it is
 * parked. When a wait has lasted about as long as the previous one, it spins again: for an eighth
 * of that time before and after, 80 to {@value #SPIN_ABOUT_MICROS} us. It thus detects the end of a
 * model's step, which takes as long as the previous step, without delay. A pass allocates nothing
 * and takes no lock.
 *
 * <p>A stream whose device has failed never stores its number. The agent therefore checks the
 * health of a stream ten times a second, after a waiter has waited for a tenth of a second. More
 * frequent driver queries would delay launches of other threads. With compute-sanitizer, a query
 * may also block until the stream is done.
 *
 * <p>An exception from a check ends neither the thread nor the checked queue.
 */
public final class CompletionAgent extends AgentThread implements AutoCloseable {
  private static final long SPIN_MICROS = 50;
  private static final long SPIN_ABOUT_MICROS = 250;
  private static final int ABOUT_SHARE = 8;

  /** The typical delay of a sleep's end, because the kernel combines timers. */
  private static final long LEAST_SPIN_ABOUT_NS = TimeUnit.MICROSECONDS.toNanos(80);

  private static final long SHORTEST_NAP_MICROS = 1;
  private static final long LONGEST_NAP_MICROS = 100;
  private static final long HEALTH_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(100);

  private final NanoClock clock;
  private final boolean ownThread;
  private final Runnable begin;

  /** The polled queues. A thread that holds this object's lock replaces the whole array. */
  private volatile CompletionQueue[] queues = {};

  /** Set once, by a holder of this object's lock. */
  private volatile boolean started;

  // Used by the agent's thread only.
  private long lastHealthCheckNs;
  private long waitingSinceNs;
  private long lastWaitNs;

  /**
   * Creates an agent whose thread starts with the first waiter.
   *
   * @param name the name of the device; the thread is called {@code fluxccl-completion-<name>}
   * @param begin run first on the thread
   */
  public CompletionAgent(String name, Runnable begin) {
    this(name, SystemNanoClock.INSTANCE, true, begin);
  }

  CompletionAgent(String name, NanoClock clock, boolean ownThread) {
    this(name, clock, ownThread, () -> {});
  }

  /**
   * Creates an agent. Without a thread of its own, the caller of {@link #doWork()} acts as its
   * thread.
   */
  private CompletionAgent(String name, NanoClock clock, boolean ownThread, Runnable begin) {
    super(
        "fluxccl-completion-" + name,
        new IdleBackoff(SPIN_MICROS, SPIN_MICROS, SHORTEST_NAP_MICROS, LONGEST_NAP_MICROS));
    this.clock = clock;
    this.ownThread = ownThread;
    this.begin = begin;
    this.lastHealthCheckNs = clock.nanoTime();
    this.waitingSinceNs = lastHealthCheckNs;
  }

  @Override
  protected void begin() {
    begin.run();
  }

  /**
   * Creates and adds the queue of a stream. Any thread.
   *
   * @param stream the stream's name
   * @param line {@link CompletionQueue#LINE_LENGTH} zeroed bytes of pinned memory, which stay until
   *     the queue is removed
   * @param progressSource another source of the stream's progress, called by the agent's thread
   *     while a waiter waits for a number that the line has not reached. Returns the highest number
   *     that the stream is known to have reached, 0 if none; all work enqueued before it is done,
   *     and its results are visible to the caller
   * @param health checks the stream once; called by the agent's thread, and never blocks. Returns
   *     the failure that prevents the stream from executing its work, or null while it may execute
   *     it; null results allocate nothing
   * @return the queue
   */
  public CompletionQueue createQueue(
      String stream,
      AtomicBuffer line,
      LongSupplier progressSource,
      Supplier<DeviceFailure> health) {
    CompletionQueue queue = new CompletionQueue(stream, line, progressSource, health, this);
    synchronized (this) {
      queues = ArrayUtil.add(queues, queue);
    }
    return queue;
  }

  synchronized void remove(CompletionQueue queue) {
    queues = ArrayUtil.remove(queues, queue);
    wake(); // it may be the last queue; the thread ends after its removal
  }

  /** Polls all queues once. Called by the agent's thread only. */
  @Override
  public int doWork() {
    int served = 0;
    CompletionQueue[] current = queues;
    for (CompletionQueue queue : current) {
      served += serve(queue, false);
    }
    long now = clock.nanoTime();
    if (now - lastHealthCheckNs >= HEALTH_INTERVAL_NS) {
      lastHealthCheckNs = now;
      for (CompletionQueue queue : current) {
        served += serve(queue, true);
      }
    }
    if (served > 0) {
      lastWaitNs = now - waitingSinceNs;
      waitingSinceNs = now;
    }
    return served;
  }

  private static int serve(CompletionQueue queue, boolean checkHealth) {
    try {
      return checkHealth ? queue.checkHealth() : queue.poll();
    } catch (Throwable e) {
      queue.checkFailed(e); // the other streams of the device still need this thread
      return 0;
    }
  }

  /** Starts or wakes the thread, so that it polls. Any thread, after a waiter was added. */
  void waiterAdded() {
    if (ownThread) {
      if (!started) {
        startOnce();
      }
      wake();
    }
  }

  private synchronized void startOnce() {
    if (!started) {
      start();
      started = true;
    }
  }

  /**
   * Ends the thread once all queues are removed; until then the thread continues to serve them. Any
   * thread. Idempotent.
   */
  @Override
  public void close() {
    end(() -> {});
  }

  @Override
  protected boolean mayEnd() {
    return queues.length == 0;
  }

  @Override
  protected void idle() {
    long now = clock.nanoTime();
    long nap = nextNapNanos(backoff().nextNapNanos(now), now);
    if (nap == 0) {
      return; // also without waiters: after a completion, new work often follows at once
    }
    if (hasPosts()) {
      nap(nap);
    } else {
      park(UNTIL_WOKEN);
      backoff().reset();
      waitingSinceNs = clock.nanoTime();
    }
  }

  /** Returns the time to sleep, or 0 while the wait is about as long as the previous one. */
  long nextNapNanos(long nap, long now) {
    long share = Math.max(LEAST_SPIN_ABOUT_NS, lastWaitNs / ABOUT_SHARE);
    long about = Math.min(TimeUnit.MICROSECONDS.toNanos(SPIN_ABOUT_MICROS), share);
    long left = lastWaitNs - about - (now - waitingSinceNs);
    if (left > 0) {
      return Math.min(nap, left);
    }
    return left + 2 * about > 0 && hasPosts() && !SpinPolicy.isCrowded() ? 0 : nap;
  }

  /** Returns whether there is a waiter. */
  @Override
  protected boolean hasPosts() {
    for (CompletionQueue queue : queues) {
      if (queue.isPending()) {
        return true;
      }
    }
    return false;
  }

  @Override
  public String toString() {
    return roleName() + Arrays.toString(queues);
  }
}
