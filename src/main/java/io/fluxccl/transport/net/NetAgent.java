// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.concurrent.RecurringWarning;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.Device;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.ArrayUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread that makes all calls of a network's connections for one communicator, because each
 * connection accepts one thread at a time. For a short time after work the thread polls without a
 * pause. Then it sleeps until a socket is ready, if the network can report that. Otherwise it
 * polls, with naps that grow with the idle time. A post wakes it. A cycle allocates nothing.
 */
final class NetAgent extends AgentThread {
  private static final Logger LOGGER = LoggerFactory.getLogger(NetAgent.class);

  /** True if there are enough cores for this thread to spin without delaying other threads. */
  private static final boolean SPINS = Runtime.getRuntime().availableProcessors() >= 8;

  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long YIELD_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(1);
  private static final long SHORT_NAP_NS = TimeUnit.MICROSECONDS.toNanos(20);
  private static final long LONG_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final int CYCLES_BETWEEN_LOOKS = 3;

  /** The least interval at which deadlines are checked. */
  private static final long CHORES_NS = TimeUnit.MILLISECONDS.toNanos(1);

  /** The interval for each connection, so that many idle connections cost little. */
  private static final long CHORES_OF_ONE_NS = TimeUnit.MICROSECONDS.toNanos(50);

  private final Device device;
  private final LinkNetwork network;
  private final NetWaiter waiter = new NetWaiter();
  private final RecurringWarning unpolled = new RecurringWarning(LOGGER);

  /** Replaced as a whole, by tasks of the agent. */
  private NetConnection[] connections = {};

  private long lastChoresNs = System.nanoTime();
  private long lastWorkNs = lastChoresNs;

  /** The number of cycles since the waiter last polled the sockets. */
  private int cyclesSinceLook;

  /**
   * Creates the agent.
   *
   * @param device the device whose memory plugins may use on this thread
   */
  NetAgent(String name, Device device, LinkNetwork network) {
    super(name, new IdleBackoff(50, 1_000, 20, 1_000));
    this.device = device;
    this.network = network;
  }

  /** Returns the waiter that wakes this thread when a socket is ready. */
  NetWaiter waiter() {
    return waiter;
  }

  /** Adds a connection to serve. Called by a task of this thread. */
  void add(NetConnection connection) {
    connections = ArrayUtil.add(connections, connection);
  }

  /**
   * Removes a connection. Called by a task of this thread, or by a connection whose links are
   * closed.
   */
  void remove(NetConnection connection) {
    connections = ArrayUtil.remove(connections, connection);
  }

  /** Returns the connections served. Called by tasks of this thread. */
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
      // Plugins may work without the binding; a plugin that can't throws an error when it is
      // called.
      LOGGER.warn("{}: {}", roleName(), e.getMessage());
    }
  }

  /**
   * Runs tasks, serves each connection once, and checks deadlines when due. Called by the agent's
   * thread only.
   */
  @Override
  public int doWork() {
    // A cycle without work ends with a sleep in the waiter, which polls the sockets anyway.
    if (cyclesSinceLook++ >= CYCLES_BETWEEN_LOOKS) {
      awaitSockets(0);
    }
    int work = runTasks();
    for (NetConnection connection : connections) {
      work += connection.serve();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= Math.max(CHORES_NS, CHORES_OF_ONE_NS * connections.length)) {
      lastChoresNs = now;
      for (NetConnection connection : connections) {
        connection.serveDeadlines();
      }
      network.tend(now);
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
    long napNs = spins ? SHORT_NAP_NS : napNs();
    if (connections.length == 0 || napNs == 0) {
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
      park(quiet < QUIET_NS ? napNs : LONG_NAP_NS);
    }
  }

  /**
   * Returns the time between two polls of the connections, 0 if none must be polled. It grows with
   * the number of those that connect: their peers' agents need the cores.
   */
  private long napNs() {
    int connecting = 0;
    for (NetConnection connection : connections) {
      if (connection.isConnecting()) {
        connecting++;
      } else if (!connection.isWatched()) {
        return SHORT_NAP_NS;
      }
    }
    return Math.min(SHORT_NAP_NS * connecting, LONG_NAP_NS);
  }

  @Override
  protected void sleep(long nanos) {
    if (nanos < LONG_NAP_NS) {
      super.sleep(nanos);
    } else {
      awaitSockets(nanos);
    }
  }

  /**
   * Polls the sockets if the time is 0, or else sleeps until one is ready. If that fails, so do all
   * connections: no socket would become ready for them. Logs that once a minute, because there may
   * be no connection.
   */
  private void awaitSockets(long nanos) {
    cyclesSinceLook = 0;
    try {
      if (nanos == 0) {
        waiter.poll();
      } else {
        waiter.await(nanos);
      }
    } catch (RuntimeException e) {
      String problem = "its sockets can't be polled, so join again: " + e;
      for (NetConnection connection : connections) {
        connection.fail(problem, e);
      }
      unpolled.warn(roleName() + ": " + problem);
      nap(LONG_NAP_NS);
    }
  }

  @Override
  protected void endSleep() {
    // A nap too short for the waiter ends by itself.
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
