// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.NonblockingThread;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread that makes a plugin's calls for {@link ReactiveNet}. It polls the operations in
 * progress, and sleeps for longer intervals while no operation completes.
 */
final class NetLoop implements Agent {
  private static final Logger LOGGER = LoggerFactory.getLogger(NetLoop.class);

  private static final long LONGEST_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long SHORTEST_NAP_NS = TimeUnit.MICROSECONDS.toNanos(5);
  private static final long PARK_NS = TimeUnit.MILLISECONDS.toNanos(50);
  private static final int YIELDS = 50;

  private final String name;
  private final Thread thread;
  private final Queue<NetOperation<?>> arrivals = new ConcurrentLinkedQueue<>();
  private volatile boolean closed;

  /**
   * Whether the loop has stopped polling {@link #arrivals}; {@link #submit} then refuses them
   * itself.
   */
  private volatile boolean ended;

  /**
   * The submitted operations that are not complete. {@link #end} fails them, also while the thread
   * is blocked in a plugin call.
   */
  private final Set<NetOperation<?>> pending = ConcurrentHashMap.newKeySet();

  /** The operation whose plugin call is in progress, or null. */
  private volatile NetOperation<?> current;

  // Used only by the loop's thread.
  private final Map<Object, ArrayDeque<NetOperation<?>>> lanes = new IdentityHashMap<>();
  private int idleTurns;
  private long napNs = SHORTEST_NAP_NS;

  NetLoop(String name) {
    this.name = name;
    this.thread = new NonblockingThread(this::run, name);
  }

  void start() {
    thread.start();
  }

  @Override
  public String roleName() {
    return name;
  }

  /** Submits an operation to the loop's thread. Called by any thread. */
  void submit(NetOperation<?> operation) {
    pending.add(operation);
    arrivals.add(operation);
    LockSupport.unpark(thread);
    if (ended) {
      refuseArrivals();
    }
  }

  private void run() {
    try {
      while (!closed) {
        if (doWork() > 0) {
          idleTurns = 0;
          napNs = SHORTEST_NAP_NS;
        } else {
          idle();
        }
      }
    } finally {
      lanes.values().forEach(lane -> lane.forEach(NetLoop::drop));
      lanes.clear();
      end();
    }
  }

  private static void drop(NetOperation<?> operation) {
    try {
      operation.drop();
    } catch (RuntimeException e) {
      LOGGER.warn("{} can't be given up", operation.description(), e);
    }
  }

  /** Fails every operation that is pending or arrives later. Called by any thread. */
  private void end() {
    ended = true;
    refuseArrivals();
    Aborted reason = new Aborted(FluxCclException.NO_RANK, name + " was closed");
    pending.forEach(operation -> operation.fail(reason));
    pending.clear();
  }

  private void refuseArrivals() {
    for (NetOperation<?> late = arrivals.poll(); late != null; late = arrivals.poll()) {
      late.fail(new InvalidUsage(name + " is closed"));
      pending.remove(late);
    }
  }

  /** Starts the operations that arrived and advances all others. Called by the loop's thread. */
  @Override
  public int doWork() {
    int work = 0;
    for (NetOperation<?> next = arrivals.poll(); next != null; next = arrivals.poll()) {
      lanes.computeIfAbsent(next.lane(), key -> new ArrayDeque<>()).add(next);
      work++;
    }
    for (Iterator<ArrayDeque<NetOperation<?>>> all = lanes.values().iterator(); all.hasNext(); ) {
      ArrayDeque<NetOperation<?>> lane = all.next();
      work += advance(lane);
      if (lane.isEmpty()) {
        all.remove();
      }
    }
    return work;
  }

  private int advance(ArrayDeque<NetOperation<?>> lane) {
    int done = 0;
    // blocked: an earlier operation has not begun and must not be overtaken. awaited: an earlier
    // operation has begun, and its subscriber still waits for it.
    boolean blocked = false;
    boolean awaited = false;
    for (Iterator<NetOperation<?>> operations = lane.iterator(); operations.hasNext(); ) {
      NetOperation<?> operation = operations.next();
      current = operation;
      boolean over;
      if (blocked) {
        over = operation.expire();
      } else if (awaited && operation.isClose()) {
        over = operation.advanceBehindOthers();
      } else {
        over = operation.advance();
      }
      current = null;
      if (over) {
        operations.remove();
        pending.remove(operation);
        done++;
      } else if (operation.hasBegun()) {
        awaited |= operation.isAwaited();
      } else {
        blocked = true;
      }
    }
    return done;
  }

  private void idle() {
    if (lanes.isEmpty()) {
      LockSupport.parkNanos(this, PARK_NS);
    } else if (++idleTurns < YIELDS) {
      Thread.yield();
    } else {
      LockSupport.parkNanos(this, napNs);
      napNs = Math.min(2 * napNs, LONGEST_NAP_NS);
    }
  }

  /**
   * Stops the loop and fails the operations in progress. Returns when the loop makes no more plugin
   * calls, or at once if the loop's own thread calls this.
   *
   * @param timeout the longest time that a plugin call in progress may take to return
   * @throws Timeout if the plugin call has not returned by then; the thread stays in the call, and
   *     ends when the call returns
   */
  void close(Duration timeout) {
    closed = true;
    LockSupport.unpark(thread);
    if (Thread.currentThread() == thread || hasEnded(Deadline.after(timeout))) {
      return;
    }
    NetOperation<?> stuck = current;
    Timeout reason =
        new Timeout(
            FluxCclException.NO_RANK,
            Text.of(
                "%s: close: the network plugin has not returned within %s ms from %s; its"
                    + " thread and what the call uses are left",
                name, timeout.toMillis(), stuck == null ? "a call" : stuck.description()));
    LOGGER.warn(reason.getMessage());
    end();
    throw reason;
  }

  private boolean hasEnded(Deadline deadline) {
    boolean interrupted = false;
    boolean over = !thread.isAlive();
    while (!over) {
      try {
        // At least 1 ms: join(0) would wait without a limit.
        thread.join(Math.max(1, deadline.remainingMillis()));
        over = !thread.isAlive() || deadline.expired();
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return !thread.isAlive();
  }
}
