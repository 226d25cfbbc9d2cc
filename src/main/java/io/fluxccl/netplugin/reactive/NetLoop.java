// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.IdleBackoff;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread that makes a plugin's calls for {@link ReactiveNet}. It polls the operations in
 * progress, and sleeps for longer intervals while no operation completes.
 */
final class NetLoop extends AgentThread {
  private static final Logger LOGGER = LoggerFactory.getLogger(NetLoop.class);

  private final Queue<NetOperation<?>> arrivals = new ConcurrentLinkedQueue<>();

  /**
   * Whether the loop has stopped polling {@link #arrivals}; {@link #submit} then refuses them
   * itself.
   */
  private volatile boolean ended;

  /**
   * The submitted operations that are not complete. {@link #failAll} fails them, also while the
   * thread is blocked in a plugin call.
   */
  private final Set<NetOperation<?>> pending = ConcurrentHashMap.newKeySet();

  /** The operation whose plugin call is in progress, or null. */
  private volatile NetOperation<?> current;

  // Used only by the loop's thread.
  private final Map<Object, ArrayDeque<NetOperation<?>>> lanes = new IdentityHashMap<>();

  NetLoop(String name) {
    super(name, new IdleBackoff(0, 100, 5, 1_000));
  }

  /** Submits an operation to the loop's thread. Called by any thread. */
  void submit(NetOperation<?> operation) {
    pending.add(operation);
    arrivals.add(operation);
    wake();
    if (ended) {
      refuseArrivals();
    }
  }

  /** The last task of the thread. */
  private void dropAll() {
    lanes.values().forEach(lane -> lane.forEach(NetLoop::drop));
    lanes.clear();
    failAll();
  }

  private static void drop(NetOperation<?> operation) {
    try {
      operation.drop();
    } catch (RuntimeException e) {
      LOGGER.warn("{} can't be given up", operation.description(), e);
    }
  }

  /** Fails every operation that is pending or arrives later. Called by any thread. */
  private void failAll() {
    ended = true;
    refuseArrivals();
    Aborted reason = new Aborted(FluxCclException.NO_RANK, roleName() + " was closed");
    pending.forEach(operation -> operation.fail(reason));
    pending.clear();
  }

  private void refuseArrivals() {
    for (NetOperation<?> late = arrivals.poll(); late != null; late = arrivals.poll()) {
      late.fail(new InvalidUsage(roleName() + " is closed"));
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

  @Override
  protected boolean hasPosts() {
    return !arrivals.isEmpty();
  }

  @Override
  protected void idle() {
    if (lanes.isEmpty()) {
      park(UNTIL_WOKEN);
      backoff().reset();
    } else {
      super.idle();
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
    end(this::dropAll);
    if (isCurrentThread() || awaitEnd(Deadline.after(timeout))) {
      return;
    }
    NetOperation<?> stuck = current;
    Timeout reason =
        new Timeout(
            FluxCclException.NO_RANK,
            Text.of(
                "%s: close: the network plugin has not returned within %s ms from %s; its"
                    + " thread and what the call uses are left",
                roleName(), timeout.toMillis(), stuck == null ? "a call" : stuck.description()));
    LOGGER.warn(reason.getMessage());
    failAll();
    throw reason;
  }
}
