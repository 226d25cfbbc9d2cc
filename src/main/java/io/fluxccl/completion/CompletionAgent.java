package io.fluxccl.completion;

import io.fluxccl.concurrent.NonblockingThread;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.NanoClock;
import org.agrona.concurrent.SystemNanoClock;

/**
 * The one thread that looks at the lines of a device's streams and completes what waits for them.
 * It starts with the first waiter, polls hard for {@value #SPIN_MICROS} us after each event, then
 * sleeps ever longer, up to {@value #LONGEST_NAP_MICROS} us; while nobody waits it is parked. A
 * pass allocates nothing.
 *
 * <p>A stream whose device failed never stores its number. So what has waited for a millisecond has
 * the stream's health looked at, once a millisecond.
 *
 * <p>Whatever a look throws, the thread goes on, with the other streams and with this one.
 */
public final class CompletionAgent implements Agent, AutoCloseable {
  private static final long SPIN_MICROS = 50;
  private static final long LONGEST_NAP_MICROS = 100;
  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(SPIN_MICROS);
  private static final long LONGEST_NAP_NS = TimeUnit.MICROSECONDS.toNanos(LONGEST_NAP_MICROS);
  private static final long HEALTH_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

  private final String name;
  private final NanoClock clock;
  private final boolean ownThread;

  /** Replaced as a whole, by holders of this object's lock. */
  private volatile CompletionQueue[] queues = {};

  private volatile boolean closed;
  private volatile boolean parked;

  /** Set once, by a holder of this object's lock. */
  private volatile Thread thread;

  /** Used by the agent's thread only, as all below. */
  private long lastHealthCheckNs;

  private long lastEventNs;
  private long napNs;

  /**
   * @param name of the device; the thread is called {@code fluxccl-completion-} and that
   */
  public CompletionAgent(String name) {
    this(name, SystemNanoClock.INSTANCE, true);
  }

  /** Without a thread of its own, the caller of {@link #doWork()} is its thread. */
  CompletionAgent(String name, NanoClock clock, boolean ownThread) {
    this.name = name;
    this.clock = clock;
    this.ownThread = ownThread;
    this.lastHealthCheckNs = clock.nanoTime();
  }

  /**
   * A queue for one more stream. Any thread.
   *
   * @param stream its name
   * @param line {@link CompletionQueue#LINE_LENGTH} zeroed bytes of pinned memory, which stay until
   *     the queue is removed
   * @param milestones what else tells how far the stream is, asked while somebody waits
   * @param health whether the stream can still get anywhere
   * @return the queue
   */
  public CompletionQueue createQueue(
      String stream, AtomicBuffer line, Milestones milestones, StreamHealth health) {
    CompletionQueue queue = new CompletionQueue(stream, line, milestones, health, this);
    synchronized (this) {
      CompletionQueue[] before = queues;
      CompletionQueue[] after = Arrays.copyOf(before, before.length + 1);
      after[before.length] = queue;
      queues = after;
    }
    return queue;
  }

  /** The same for a stream whose line tells everything. */
  CompletionQueue createQueue(String stream, AtomicBuffer line, StreamHealth health) {
    return createQueue(stream, line, Milestones.NONE, health);
  }

  synchronized void remove(CompletionQueue queue) {
    queues = Arrays.stream(queues).filter(other -> other != queue).toArray(CompletionQueue[]::new);
    unparkToEnd();
  }

  @Override
  public String roleName() {
    return "fluxccl-completion-" + name;
  }

  /** One look at everything. Called by the agent's thread only. */
  @Override
  public int doWork() {
    int served = 0;
    CompletionQueue[] current = queues;
    for (CompletionQueue queue : current) {
      served += poll(queue);
    }
    long now = clock.nanoTime();
    if (now - lastHealthCheckNs >= HEALTH_INTERVAL_NS) {
      lastHealthCheckNs = now;
      for (CompletionQueue queue : current) {
        served += checkHealth(queue);
      }
    }
    return served;
  }

  private static int poll(CompletionQueue queue) {
    try {
      return queue.poll();
    } catch (Throwable e) {
      // Without this thread no stream of the device would ever complete anything.
      queue.lookFailed(e);
      return 0;
    }
  }

  private static int checkHealth(CompletionQueue queue) {
    try {
      return queue.checkHealth();
    } catch (Throwable e) {
      queue.lookFailed(e);
      return 0;
    }
  }

  /**
   * Lets the thread end once all queues are removed; until then it goes on serving them. Any
   * thread. Idempotent.
   */
  @Override
  public synchronized void close() {
    closed = true;
    unparkToEnd();
  }

  private void unparkToEnd() {
    if (closed && queues.length == 0 && thread != null) {
      LockSupport.unpark(thread);
    }
  }

  /** Sees to it that somebody polls. Any thread, after a waiter was added. */
  void wake() {
    if (!ownThread) {
      return;
    }
    if (thread == null) {
      start();
    }
    if (parked) {
      LockSupport.unpark(thread);
    }
  }

  private synchronized void start() {
    if (thread != null) {
      return;
    }
    Thread next = new NonblockingThread(this::run, roleName());
    next.start();
    thread = next;
  }

  private void run() {
    event();
    while (true) {
      if (doWork() > 0) {
        event();
      } else if (isPending()) {
        idle();
      } else if (closed && queues.length == 0) {
        return;
      } else {
        park();
      }
    }
  }

  private void event() {
    lastEventNs = clock.nanoTime();
    napNs = 1_000;
  }

  private void idle() {
    if (clock.nanoTime() - lastEventNs < SPIN_NS) {
      Thread.onSpinWait();
    } else {
      nap();
    }
  }

  private void nap() {
    Thread.interrupted(); // else it would not sleep; nobody interrupts this thread for a reason
    LockSupport.parkNanos(this, napNs);
    napNs = Math.min(2 * napNs, LONGEST_NAP_NS);
  }

  private void park() {
    Thread.interrupted();
    parked = true;
    // Again after the flag is up: who adds a waiter looks at the flag after that. Both volatile.
    if (!isPending() && !(closed && queues.length == 0)) {
      LockSupport.park(this);
    }
    parked = false;
    event();
  }

  private boolean isPending() {
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
