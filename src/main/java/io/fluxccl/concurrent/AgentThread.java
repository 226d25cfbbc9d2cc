// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.lang.invoke.VarHandle;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.agrona.concurrent.IdleStrategy;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A polling thread: the agent loop of the library. A subclass implements one poll of its work
 * ({@link #doWork}). Opening and closing of polled objects run as tasks on the thread ({@link
 * #execute}). Other threads {@link #wake} it. After polls without work it idles with an {@link
 * IdleBackoff}, whose sleeps a wake ends.
 *
 * <p>It differs from Agrona's {@code AgentRunner}: an exception or an interrupt does not end it,
 * tasks run even after its end, and it parks while no work is expected. A cycle without tasks
 * allocates nothing and takes no lock.
 */
public abstract class AgentThread implements Agent {
  /** For {@link #park}: no time limit. */
  protected static final long UNTIL_WOKEN = Long.MAX_VALUE;

  /** The pause after a cycle that threw, so that repeated failures do not occupy a core. */
  private static final long FAILED_CYCLE_NAP_NS = 1_000_000;

  private static final Logger LOGGER = LoggerFactory.getLogger(AgentThread.class);

  private final String name;
  private final Thread thread;
  private final IdleStrategy idling;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private volatile boolean parked;

  /** Set after the thread has run its last task. */
  private volatile boolean terminated;

  /** The thread's last task; non-null once the thread was asked to end. */
  private volatile Runnable ending;

  /**
   * Creates a thread that is not started.
   *
   * @param name the thread's name
   * @param idling the idle strategy: an {@link IdleBackoff}, whose sleeps {@link #wake} ends, or a
   *     user's strategy
   */
  protected AgentThread(String name, IdleStrategy idling) {
    this.name = name;
    this.idling = idling;
    this.thread = new NonblockingThread(this::run, name);
  }

  /** Starts the thread. */
  public final void start() {
    thread.start();
  }

  @Override
  public final String roleName() {
    return name;
  }

  /** Returns whether the caller is this thread. */
  public final boolean isCurrentThread() {
    return Thread.currentThread() == thread;
  }

  /** Returns whether the thread has run its last task. */
  public final boolean isTerminated() {
    return terminated;
  }

  /**
   * Runs a task between two cycles, never inside one; on the caller's thread once this one has
   * ended. Any thread.
   *
   * @param task the task; its failure is logged
   */
  public final void execute(Runnable task) {
    tasks.add(task);
    wake();
    if (terminated) {
      runLateTasks();
    }
  }

  /** Runs tasks that were submitted after the end, on the callers' threads, one at a time. */
  private synchronized void runLateTasks() {
    runTasks();
  }

  /** Makes the thread poll its work soon. Any thread; allocates nothing. */
  public final void wake() {
    // Orders the caller's post before the load of the flag; pairs with the volatile store in
    // park().
    VarHandle.fullFence();
    if (parked) {
      endSleep();
    }
  }

  /**
   * Ends the thread once it has run all tasks and {@link #mayEnd}. Any thread.
   *
   * @param last its last task; runs at once if the thread has ended already
   */
  public final void end(Runnable last) {
    ending = last;
    wake();
    if (terminated) {
      run(last);
    }
  }

  /**
   * Waits until the thread has ended. An interrupt of the caller does not end the wait and is kept.
   *
   * @param deadline the end of the wait
   * @return whether it has ended
   */
  public final boolean awaitEnd(Deadline deadline) {
    boolean interrupted = false;
    while (thread.isAlive() && !deadline.expired()) {
      try {
        thread.join(deadline.remainingMillis());
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return !thread.isAlive();
  }

  /** Interrupts a blocking call of the thread. The thread continues. */
  public final void interrupt() {
    thread.interrupt();
  }

  private void run() {
    // Kernels that wait must leave this thread a core, or yield.
    SpinPolicy.enter();
    try {
      run(this::begin);
      while (ending == null || !tasks.isEmpty() || !mayEnd()) {
        cycle();
      }
    } finally {
      SpinPolicy.exit();
      Runnable last = ending;
      if (last != null) {
        run(last);
      }
      terminated = true;
      runLateTasks();
    }
  }

  private void cycle() {
    try {
      if (doWork() > 0) {
        idling.reset();
      } else {
        idle();
      }
    } catch (Throwable e) {
      // The thread must continue: it serves all polled objects and their deadlines.
      LOGGER.warn("{}: a cycle failed: {}", name, FluxCclException.from(e).getMessage(), e);
      nap(FAILED_CYCLE_NAP_NS);
    }
  }

  /** Polls all work once and returns the amount of work done. On this thread. */
  @Override
  public abstract int doWork();

  /** Runs first on the thread. */
  protected void begin() {}

  /** Returns how it idles, for a subclass that was created with an {@link IdleBackoff}. */
  protected final IdleBackoff backoff() {
    return (IdleBackoff) idling;
  }

  /** Idles after a cycle without work; by default for the time that the backoff returns. */
  protected void idle() {
    if (!(idling instanceof IdleBackoff)) {
      idling.idle();
      return;
    }
    long nap = backoff().nextNapNanos(System.nanoTime());
    if (nap > 0) {
      park(nap);
    }
  }

  /** Returns whether the thread has nothing left to serve, so that it may end. */
  protected boolean mayEnd() {
    return true;
  }

  /** Returns whether other threads posted work since the last poll; called before parking. */
  protected boolean hasPosts() {
    return false;
  }

  /** Runs the waiting tasks and returns their number; the first part of {@link #doWork}. */
  protected final int runTasks() {
    int run = 0;
    for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
      run(task);
      run++;
    }
    return run;
  }

  private void run(Runnable task) {
    try {
      task.run();
    } catch (Throwable e) {
      LOGGER.warn("{}: a task failed: {}", name, FluxCclException.from(e).getMessage(), e);
    }
  }

  /**
   * Sleeps until {@link #wake}, a task, or the end of the time.
   *
   * @param nanos the longest sleep, or {@link #UNTIL_WOKEN}
   */
  protected final void park(long nanos) {
    parked = true;
    // Checked again after the flag is set: a poster loads the flag after its post.
    if (tasks.isEmpty() && !hasPosts() && (ending == null || !mayEnd())) {
      sleep(nanos);
    }
    parked = false;
  }

  /** Sleeps until {@link #endSleep} or the end of the time; a subclass may sleep in a selector. */
  protected void sleep(long nanos) {
    nap(nanos);
  }

  /** Ends {@link #sleep}. Any thread; called by {@link #wake}. */
  protected void endSleep() {
    LockSupport.unpark(thread);
  }

  /** Called if the thread was interrupted. Does nothing unless a subclass overrides it. */
  protected void onInterrupt() {}

  /** Sleeps for that long; {@link #wake} does not end it. */
  protected final void nap(long nanos) {
    if (Thread.interrupted()) { // otherwise it would not sleep
      onInterrupt();
    }
    if (nanos == UNTIL_WOKEN) {
      LockSupport.park(this);
    } else {
      LockSupport.parkNanos(this, nanos);
    }
  }
}
