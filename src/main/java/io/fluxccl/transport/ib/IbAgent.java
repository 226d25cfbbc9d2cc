package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingThread;
import io.fluxccl.device.host.SpinPolicy;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread of one device for one communicator: takes connection events, completes futures, and
 * does of posting and polling what those who post do not do themselves. All that opens or closes
 * anything there runs as a task of it. While somebody waits for a flush it polls, first hard and
 * then with naps; so it does all the time while there is a connection whose memory is staged here.
 * Otherwise it naps, or is parked and looks up every few milliseconds. A cycle allocates nothing.
 */
final class IbAgent implements Agent {
  private static final Logger LOGGER = LoggerFactory.getLogger(IbAgent.class);

  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long LONGEST_NAP_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long UNAWAITED_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long CONNECTING_NAP_NS = TimeUnit.MICROSECONDS.toNanos(200);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** Connection events and deadlines are looked at this often. */
  private static final long CHORES_INTERVAL_NS = TimeUnit.MICROSECONDS.toNanos(500);

  private final String name;
  private final Thread thread;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();

  /** Set by the task that opens it; used by the agent's thread only. */
  private VerbsPort port;

  /** Replaced as a whole, by tasks of the agent. */
  private IbConnection[] connections = {};

  private volatile boolean parked;

  /** Set when the thread has run its last task of its own accord. */
  private volatile boolean terminated;

  private boolean ending;
  private long lastChoresNs = System.nanoTime();
  private long lastEventNs;
  private long napNs;

  IbAgent(String name) {
    this.name = name;
    this.thread = new NonblockingThread(this::run, name);
  }

  /** Begins to work with that device. */
  void start(VerbsPort opened) {
    port = opened;
    thread.start();
  }

  @Override
  public String roleName() {
    return name;
  }

  boolean isCurrentThread() {
    return Thread.currentThread() == thread;
  }

  /**
   * Runs a task between two cycles; never inside of one, nor inside of what is chained to a future.
   * Once the thread has ended, on the caller's. Any thread.
   */
  void execute(Runnable task) {
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
  void wake() {
    // Orders the post before the look at the flag; pairs with the volatile store in park().
    VarHandle.fullFence();
    if (parked) {
      LockSupport.unpark(thread);
    }
  }

  /** A task adds a connection to those served. */
  void add(IbConnection connection) {
    IbConnection[] more = Arrays.copyOf(connections, connections.length + 1);
    more[connections.length] = connection;
    connections = more;
  }

  /** A task takes a connection away. */
  void remove(IbConnection connection) {
    connections =
        Arrays.stream(connections).filter(c -> c != connection).toArray(IbConnection[]::new);
  }

  /** A task lets the thread end once all tasks are done. */
  void end() {
    ending = true;
  }

  private void run() {
    // Kernels that wait must leave this thread a core, or yield.
    SpinPolicy.enter();
    try {
      event();
      while (!ending || !tasks.isEmpty()) {
        if (doWork() > 0) {
          event();
        } else {
          idle();
        }
      }
    } finally {
      SpinPolicy.exit();
      terminated = true;
      runLateTasks();
    }
  }

  /** One look at everything. Called by the agent's thread only. */
  @Override
  public int doWork() {
    int work = runTasks();
    for (IbConnection connection : connections) {
      work += connection.doWork();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= CHORES_INTERVAL_NS && !ending) {
      lastChoresNs = now;
      work += doChores();
    }
    return work;
  }

  private int doChores() {
    int events = 0;
    try {
      events = port.poll();
    } catch (IOException e) {
      LOGGER.warn("{}: connection events can't be read: {}", name, e.getMessage());
    }
    for (IbConnection connection : connections) {
      connection.checkDeadlines();
    }
    return events;
  }

  private int runTasks() {
    int run = 0;
    for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
      try {
        task.run();
      } catch (RuntimeException e) {
        LOGGER.warn("{}: a task failed: {}", name, FluxCclException.from(e).getMessage(), e);
      }
      run++;
    }
    return run;
  }

  private void event() {
    lastEventNs = System.nanoTime();
    napNs = 1_000;
  }

  private void idle() {
    boolean busy = false;
    boolean awaited = false;
    boolean connecting = false;
    for (IbConnection connection : connections) {
      busy |= connection.isBusy();
      awaited |= connection.isAwaited();
      connecting |= connection.isConnecting();
    }
    if (busy && awaited && System.nanoTime() - lastEventNs < SPIN_NS) {
      if (SpinPolicy.isCrowded()) {
        Thread.yield();
      } else {
        Thread.onSpinWait();
      }
    } else if (busy && awaited) {
      nap();
    } else if (busy) {
      // Who posted it looks for its completion where it matters; it is only to be found in the end.
      park(UNAWAITED_NAP_NS);
    } else {
      park(connecting ? CONNECTING_NAP_NS : LONGEST_PARK_NS);
    }
  }

  private void nap() {
    Thread.interrupted(); // else it would not sleep; nobody interrupts this thread for a reason
    LockSupport.parkNanos(this, napNs);
    napNs = Math.min(2 * napNs, LONGEST_NAP_NS);
  }

  private void park(long nanos) {
    Thread.interrupted();
    parked = true;
    // Again after the flag is up: who posts looks at the flag after that.
    if (!hasWork()) {
      LockSupport.parkNanos(this, nanos);
    }
    parked = false;
  }

  private boolean hasWork() {
    boolean work = !tasks.isEmpty();
    for (IbConnection connection : connections) {
      work |= connection.isAwaited();
    }
    return work;
  }
}
