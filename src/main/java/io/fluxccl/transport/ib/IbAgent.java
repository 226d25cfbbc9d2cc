// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.IdleBackoff;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.ArrayUtil;

/**
 * The thread of one RDMA device for one communicator. It connects, notices peers that leave,
 * completes futures, and posts and polls for callers that could not do so themselves. Connections
 * are opened and closed by tasks on this thread. A cycle allocates nothing.
 *
 * <p>While a flush is awaited the thread polls, first spinning and then with short naps. Otherwise
 * it parks, and checks every few milliseconds for peers that have left.
 */
final class IbAgent extends AgentThread {
  private static final long UNAWAITED_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long CONNECTING_NAP_NS = TimeUnit.MICROSECONDS.toNanos(200);
  private static final long LONGEST_PARK_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** The interval at which the thread looks for peers that have left and checks deadlines. */
  private static final long CHORES_INTERVAL_NS = TimeUnit.MICROSECONDS.toNanos(500);

  /** The connections served; tasks of this thread replace the whole array. */
  private IbConnection[] connections = {};

  /**
   * Connections that were closed here and send their final message; tasks of this thread add them.
   */
  private ClosingQueuePair[] leaving = {};

  private long lastChoresNs = System.nanoTime();

  IbAgent(String name) {
    super(name, new IdleBackoff(50, 50, 1, 50));
  }

  /** Adds a connection to serve. Called by a task of this thread. */
  void add(IbConnection connection) {
    connections = ArrayUtil.add(connections, connection);
  }

  /** Removes a connection. Called by a task of this thread. */
  void remove(IbConnection connection) {
    connections = ArrayUtil.remove(connections, connection);
  }

  /** Adds a queue pair that sends its final message. Called by a task of this thread. */
  void add(ClosingQueuePair link) {
    leaving = ArrayUtil.add(leaving, link);
  }

  @Override
  protected boolean mayEnd() {
    return leaving.length == 0;
  }

  @Override
  public int doWork() {
    int work = runTasks();
    for (IbConnection connection : connections) {
      work += connection.serve();
    }
    long now = System.nanoTime();
    if (now - lastChoresNs >= CHORES_INTERVAL_NS) {
      lastChoresNs = now;
      doChores();
    }
    return work;
  }

  private void doChores() {
    for (IbConnection connection : connections) {
      connection.serveDeadlines();
    }
    for (ClosingQueuePair link : leaving) {
      if (link.isDone()) {
        leaving = ArrayUtil.remove(leaving, link);
        execute(link::close);
      }
    }
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
    if (busy && awaited) {
      long nap = backoff().nextNapNanos(System.nanoTime());
      if (nap > 0) {
        nap(nap);
      }
    } else if (busy) {
      // A poster that needs a completion polls for it itself; this thread only takes the last ones.
      park(UNAWAITED_NAP_NS);
    } else {
      park(connecting || leaving.length > 0 ? CONNECTING_NAP_NS : LONGEST_PARK_NS);
    }
  }

  @Override
  protected boolean hasPosts() {
    boolean posts = false;
    for (IbConnection connection : connections) {
      posts |= connection.isAwaited();
    }
    return posts;
  }

  /**
   * A queue pair of a connection that was closed here. It stays open until the peer has
   * acknowledged the final message, at most half a second. Confined to the agent.
   */
  static final class ClosingQueuePair implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofMillis(500);

    private final Verbs.Link link;
    private final ControlWords words;
    private final Deadline deadline = Deadline.after(LIMIT);

    /** Takes over a queue pair whose only request in flight is the final message. */
    ClosingQueuePair(Verbs.Link link, ControlWords words) {
      this.link = link;
      this.words = words;
    }

    /** Returns whether the final message has arrived, has failed, or is late. */
    boolean isDone() {
      return deadline.expired() || hasCompletion();
    }

    @Override
    public void close() {
      Closing.all(link, words);
    }

    private boolean hasCompletion() {
      try {
        return link.poll() > 0;
      } catch (IOException | RuntimeException e) {
        return true; // the device has failed
      }
    }
  }
}
