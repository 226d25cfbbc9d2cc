package io.fluxccl.transport;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.concurrent.SpinPolicy;
import java.lang.invoke.VarHandle;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * For transports: a thread that serves the connections of one communicator. All that opens or
 * closes anything there runs as a task of it; others wake it when it has parked itself. A subclass
 * says what a look at its connections is ({@link #doWork}) and what to do between two that found
 * nothing ({@link #idle}). A cycle without tasks allocates nothing.
 */
public abstract class TransportAgent implements Agent {
  /** After a cycle that threw, lest one that always does takes a core. */
  private static final long FAILED_CYCLE_NAP_NS = 1_000_000;

  private static final Logger LOGGER = LoggerFactory.getLogger(TransportAgent.class);

  private final String name;
  private final Thread thread;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private volatile boolean parked;

  /** Set when the thread has run its last task of its own accord. */
  private volatile boolean terminated;

  /** Its last deed, once it is to end. */
  private Runnable ending;

  /**
   * A thread that is not started.
   *
   * @param name the thread's
   */
  protected TransportAgent(String name) {
    this.name = name;
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

  /** Whether the caller is this thread. */
  public final boolean isCurrentThread() {
    return Thread.currentThread() == thread;
  }

  /** Whether nothing runs any more. */
  public final boolean isTerminated() {
    return terminated;
  }

  /**
   * Runs a task between two cycles; never inside of one, nor inside of what is chained to a future.
   * Once the thread has ended, on the caller's. Any thread.
   *
   * @param task what it does; what it throws is logged
   */
  public final void execute(Runnable task) {
    tasks.add(task);
    wake();
    if (terminated) {
      runLateTasks();
    }
  }

  /** Those who come late take turns. */
  private synchronized void runLateTasks() {
    runTasks();
  }

  /** Sees to it that what was just posted is looked at. Any thread; allocates nothing. */
  public final void wake() {
    // Orders the post before the look at the flag; pairs with the volatile store in park().
    VarHandle.fullFence();
    if (parked) {
      LockSupport.unpark(thread);
    }
  }

  /**
   * A task lets the thread end, when there are no more tasks and it {@link #mayEnd}.
   *
   * @param last its last deed; done at once when the thread has died before
   */
  public final void end(Runnable last) {
    ending = last;
    if (terminated) {
      run(last);
    }
  }

  /** Whether {@link #end} was called. On this thread. */
  protected final boolean isEnding() {
    return ending != null;
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
      if (ending != null) {
        run(ending);
      }
      terminated = true;
      runLateTasks();
    }
  }

  private void cycle() {
    try {
      if (doWork() > 0) {
        worked();
      } else {
        idle();
      }
    } catch (Throwable e) {
      // Without this thread nobody would be served any more, nor told that time is up.
      LOGGER.warn("{}: a cycle failed: {}", name, FluxCclException.from(e).getMessage(), e);
      nap(FAILED_CYCLE_NAP_NS);
    }
  }

  /** One look at everything; gives how much was done. On this thread. */
  @Override
  public abstract int doWork();

  /** What the thread does first. */
  protected void begin() {
    worked();
  }

  /** A cycle has done something. */
  protected abstract void worked();

  /** A cycle has found nothing to do. */
  protected abstract void idle();

  /** Whether nothing is left that it serves. */
  protected boolean mayEnd() {
    return true;
  }

  /** Runs the tasks that there are; gives how many. The first part of {@link #doWork}. */
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
   * Sleeps until somebody wakes it, or time is up.
   *
   * @param nanos at most that long
   */
  protected final void park(long nanos) {
    parked = true;
    // Again after the flag is up: who posts looks at the flag after that.
    if (tasks.isEmpty() && !hasPosts()) {
      nap(nanos);
    }
    parked = false;
  }

  /** Sleeps, and is not to be woken. */
  protected final void nap(long nanos) {
    Thread.interrupted(); // else it would not sleep; nobody interrupts this thread for a reason
    LockSupport.parkNanos(this, nanos);
  }

  /** Whether a connection was posted to that the thread has to look at. */
  protected abstract boolean hasPosts();
}
