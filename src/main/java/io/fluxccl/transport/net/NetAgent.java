package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingThread;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.SpinPolicy;
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
 * The thread that makes all calls of a plugin's connections for one communicator: they take one
 * thread at a time and tell nobody that something has come, so it asks again and again. After some
 * work it asks without a pause, later with naps between, the longer the quieter it is; a post wakes
 * it. A cycle allocates nothing.
 */
final class NetAgent implements Agent {
  private static final Logger LOGGER = LoggerFactory.getLogger(NetAgent.class);

  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long YIELD_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(1);
  private static final long SHORT_NAP_NS = TimeUnit.MICROSECONDS.toNanos(20);
  private static final long LONG_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(20);

  /** Deadlines are looked at this often. */
  private static final long CHORES_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

  private final String name;
  private final Device device;
  private final Thread thread;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();

  /** Replaced as a whole, by tasks of the agent. */
  private NetConnection[] connections = {};

  private volatile boolean parked;

  /** Set when the thread has run its last task of its own accord. */
  private volatile boolean terminated;

  private Runnable ending;
  private long lastChoresNs = System.nanoTime();
  private long lastWorkNs = lastChoresNs;

  /**
   * @param device whose memory plugins may use on this thread
   */
  NetAgent(String name, Device device) {
    this.name = name;
    this.device = device;
    this.thread = new NonblockingThread(this::run, name);
  }

  void start() {
    thread.start();
  }

  @Override
  public String roleName() {
    return name;
  }

  boolean isCurrentThread() {
    return Thread.currentThread() == thread;
  }

  /** Whether nothing runs any more. */
  boolean isTerminated() {
    return terminated;
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
  void add(NetConnection connection) {
    NetConnection[] more = Arrays.copyOf(connections, connections.length + 1);
    more[connections.length] = connection;
    connections = more;
  }

  /** A task, or a connection that has ended, takes it away. */
  void remove(NetConnection connection) {
    connections =
        Arrays.stream(connections).filter(c -> c != connection).toArray(NetConnection[]::new);
  }

  /** The connections served; for tasks. */
  NetConnection[] connections() {
    return connections;
  }

  /** A task lets the thread end once all connections have, with that as its last deed. */
  void end(Runnable last) {
    ending = last;
  }

  private void run() {
    // Kernels that wait must leave this thread a core, or yield.
    SpinPolicy.enter();
    try {
      bindToDevice();
      while (ending == null || connections.length > 0 || !tasks.isEmpty()) {
        if (doWork() > 0) {
          lastWorkNs = System.nanoTime();
        } else {
          idle();
        }
      }
      ending.run();
    } finally {
      SpinPolicy.exit();
      terminated = true;
      runLateTasks();
    }
  }

  private void bindToDevice() {
    try {
      device.bindThread();
    } catch (FluxCclException e) {
      // Plugins may do without: what they can't do, they say when they are asked to.
      LOGGER.warn("{}: {}", name, e.getMessage());
    }
  }

  /** One look at everything. Called by the agent's thread only. */
  @Override
  public int doWork() {
    int work = runTasks();
    for (NetConnection connection : connections) {
      work += connection.doWork();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= CHORES_INTERVAL_NS) {
      lastChoresNs = now;
      for (NetConnection connection : connections) {
        connection.checkDeadlines();
      }
    }
    return work;
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

  private void idle() {
    long quiet = System.nanoTime() - lastWorkNs;
    if (connections.length == 0) {
      park(LONGEST_PARK_NS);
    } else if (quiet < YIELD_NS && !SpinPolicy.isCrowded()) {
      if (quiet < SPIN_NS) {
        Thread.onSpinWait();
      } else {
        Thread.yield();
      }
    } else {
      // Where others want the core, who sleeps gets it back sooner than who has yielded.
      park(quiet < QUIET_NS ? SHORT_NAP_NS : LONG_NAP_NS);
    }
  }

  private void park(long nanos) {
    Thread.interrupted(); // else it would not sleep; nobody interrupts this thread for a reason
    parked = true;
    // Again after the flag is up: who posts looks at the flag after that.
    if (!hasWork()) {
      LockSupport.parkNanos(this, nanos);
    }
    parked = false;
  }

  private boolean hasWork() {
    boolean work = !tasks.isEmpty();
    for (NetConnection connection : connections) {
      work |= connection.hasPosts();
    }
    return work;
  }
}
