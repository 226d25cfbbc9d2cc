package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.Device;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetWaiter;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.ArrayUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread that makes all calls of a network's connections for one communicator: each takes one
 * thread at a time. After some work the thread polls without a pause. Then it sleeps until a socket
 * is ready where the network can say that, and polls with naps between where it can't; the quieter
 * it is, the longer the naps. A post wakes it. A cycle allocates nothing.
 */
final class NetAgent extends AgentThread {
  private static final Logger LOGGER = LoggerFactory.getLogger(NetAgent.class);

  /** Whether there are cores enough that a thread that spins keeps no other from running. */
  private static final boolean SPINS = Runtime.getRuntime().availableProcessors() >= 8;

  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long YIELD_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(1);
  private static final long SHORT_NAP_NS = TimeUnit.MICROSECONDS.toNanos(20);
  private static final long LONG_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final int CYCLES_BETWEEN_LOOKS = 3;

  /** Deadlines are looked at this often. */
  private static final long CHORES_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

  private final Device device;
  private final NetPlugin plugin;
  private final NetWaiter waiter = new NetWaiter();

  /** Replaced as a whole, by tasks of the agent. */
  private NetConnection[] connections = {};

  private long lastChoresNs = System.nanoTime();
  private long lastWorkNs = lastChoresNs;

  /** Cycles since the waiter last said which sockets are ready. */
  private int cyclesSinceLook;

  /**
   * @param device whose memory plugins may use on this thread
   */
  NetAgent(String name, Device device, NetPlugin plugin) {
    super(name, new IdleBackoff(50, 1_000, 20, 1_000));
    this.device = device;
    this.plugin = plugin;
  }

  /** What ends this thread's sleep when a socket is ready. */
  NetWaiter waiter() {
    return waiter;
  }

  /** A task adds a connection to those served. */
  void add(NetConnection connection) {
    connections = ArrayUtil.add(connections, connection);
  }

  /** A task, or a connection that has ended, takes it away. */
  void remove(NetConnection connection) {
    connections = ArrayUtil.remove(connections, connection);
  }

  /** The connections served; for tasks. */
  NetConnection[] connections() {
    return connections;
  }

  @Override
  protected void begin() {
    bindToDevice();
    lastWorkNs = System.nanoTime();
  }

  @Override
  protected boolean mayEnd() {
    return connections.length == 0;
  }

  private void bindToDevice() {
    try {
      device.bindThread();
    } catch (FluxCclException e) {
      // Plugins may do without: what they can't do, they say when they are asked to.
      LOGGER.warn("{}: {}", roleName(), e.getMessage());
    }
  }

  /** One look at everything. Called by the agent's thread only. */
  @Override
  public int doWork() {
    // A cycle that finds nothing ends in a sleep in the waiter, which looks at the sockets anyway.
    if (cyclesSinceLook++ >= CYCLES_BETWEEN_LOOKS) {
      cyclesSinceLook = 0;
      waiter.poll();
    }
    int work = runTasks();
    for (NetConnection connection : connections) {
      work += connection.serve();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= CHORES_INTERVAL_NS) {
      lastChoresNs = now;
      for (NetConnection connection : connections) {
        connection.serveDeadlines();
      }
      plugin.tend();
    }
    if (work > 0) {
      lastWorkNs = now;
    }
    return work;
  }

  @Override
  protected void idle() {
    long quiet = System.nanoTime() - lastWorkNs;
    boolean spins = SPINS && quiet < SPIN_NS && !SpinPolicy.isCrowded();
    if (connections.length == 0 || !spins && areAllWatched()) {
      park(LONGEST_PARK_NS);
      return;
    }
    cyclesSinceLook = CYCLES_BETWEEN_LOOKS;
    if (quiet < YIELD_NS && !SpinPolicy.isCrowded()) {
      if (quiet < SPIN_NS) {
        Thread.onSpinWait();
      } else {
        Thread.yield();
      }
    } else {
      // On a crowded machine a thread that sleeps gets a core back sooner than one that yields.
      park(quiet < QUIET_NS ? SHORT_NAP_NS : LONG_NAP_NS);
    }
  }

  private boolean areAllWatched() {
    for (NetConnection connection : connections) {
      if (!connection.isWatched()) {
        return false;
      }
    }
    return true;
  }

  @Override
  protected void sleep(long nanos) {
    if (nanos < LONG_NAP_NS) {
      super.sleep(nanos);
    } else {
      waiter.await(nanos);
      cyclesSinceLook = 0;
    }
  }

  @Override
  protected void endSleep() {
    // A nap that is shorter than what the waiter can sleep just ends.
    waiter.wake();
  }

  @Override
  protected boolean hasPosts() {
    boolean posts = false;
    for (NetConnection connection : connections) {
      posts |= connection.hasPosts();
    }
    return posts;
  }
}
