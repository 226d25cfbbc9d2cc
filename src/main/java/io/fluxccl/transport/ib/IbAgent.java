package io.fluxccl.transport.ib;

import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.transport.TransportAgent;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.ArrayUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread of one device for one communicator: takes connection events, completes futures, and
 * does of posting and polling what those who post do not do themselves. All that opens or closes
 * anything there runs as a task of it. While somebody waits for a flush it polls, first hard and
 * then with naps. Otherwise it naps, or is parked and looks up every few milliseconds. A cycle
 * allocates nothing.
 */
final class IbAgent extends TransportAgent {
  private static final Logger LOGGER = LoggerFactory.getLogger(IbAgent.class);

  private static final long SPIN_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long LONGEST_NAP_NS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long UNAWAITED_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long CONNECTING_NAP_NS = TimeUnit.MICROSECONDS.toNanos(200);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** Connection events and deadlines are looked at this often. */
  private static final long CHORES_INTERVAL_NS = TimeUnit.MICROSECONDS.toNanos(500);

  /** Set by the task that opens it; used by the agent's thread only. */
  private VerbsPort port;

  /** Replaced as a whole, by tasks of the agent. */
  private IbConnection[] connections = {};

  private long lastChoresNs = System.nanoTime();
  private long lastEventNs;
  private long napNs;

  IbAgent(String name) {
    super(name);
  }

  /** Begins to work with that device. */
  void start(VerbsPort opened) {
    port = opened;
    start();
  }

  /** A task adds a connection to those served. */
  void add(IbConnection connection) {
    connections = ArrayUtil.add(connections, connection);
  }

  /** A task takes a connection away. */
  void remove(IbConnection connection) {
    connections = ArrayUtil.remove(connections, connection);
  }

  /** One look at everything. Called by the agent's thread only. */
  @Override
  public int doWork() {
    int work = runTasks();
    for (IbConnection connection : connections) {
      work += connection.serve();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= CHORES_INTERVAL_NS && !isEnding()) {
      lastChoresNs = now;
      work += doChores();
    }
    return work;
  }

  private int doChores() {
    int events = 0;
    try {
      events = port.poll();
    } catch (Throwable e) {
      // Deadlines are kept all the same.
      LOGGER.warn("{}: connection events can't be read: {}", roleName(), e.getMessage());
    }
    for (IbConnection connection : connections) {
      connection.serveDeadlines();
    }
    return events;
  }

  @Override
  protected void worked() {
    lastEventNs = System.nanoTime();
    napNs = 1_000;
  }

  @Override
  protected void idle() {
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
    nap(napNs);
    napNs = Math.min(2 * napNs, LONGEST_NAP_NS);
  }

  @Override
  protected boolean hasPosts() {
    boolean posts = false;
    for (IbConnection connection : connections) {
      posts |= connection.isAwaited();
    }
    return posts;
  }
}
