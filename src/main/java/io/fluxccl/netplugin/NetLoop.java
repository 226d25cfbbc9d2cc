package io.fluxccl.netplugin;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingThread;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;

/**
 * The thread that makes a plugin's calls for {@link ReactiveNet}: asks whether operations are done,
 * with naps that get longer while nothing happens.
 */
final class NetLoop implements Agent {
  private static final long LONGEST_NAP_NS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long SHORTEST_NAP_NS = TimeUnit.MICROSECONDS.toNanos(5);
  private static final long PARK_NS = TimeUnit.MILLISECONDS.toNanos(50);
  private static final int YIELDS = 50;

  private final String name;
  private final Thread thread;
  private final Queue<NetOperation<?>> arrivals = new ConcurrentLinkedQueue<>();
  private volatile boolean closed;

  /** Nobody looks at arrivals any more: who adds one refuses it. */
  private volatile boolean ended;

  private volatile boolean finished;

  // Of the loop's thread.
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

  /** Any thread. */
  void submit(NetOperation<?> operation) {
    arrivals.add(operation);
    LockSupport.unpark(thread);
    if (ended) {
      refuseArrivals();
    }
  }

  private void run() {
    while (!closed) {
      if (doWork() > 0) {
        idleTurns = 0;
        napNs = SHORTEST_NAP_NS;
      } else {
        idle();
      }
    }
    Aborted reason = new Aborted(FluxCclException.NO_RANK, name + " was closed");
    lanes.values().forEach(lane -> new ArrayList<>(lane).forEach(o -> o.fail(reason)));
    lanes.clear();
    ended = true;
    refuseArrivals();
    finished = true;
  }

  private void refuseArrivals() {
    for (NetOperation<?> late = arrivals.poll(); late != null; late = arrivals.poll()) {
      late.fail(new InvalidUsage(name + " is closed"));
    }
  }

  /** Called by the loop's thread. */
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

  private static int advance(ArrayDeque<NetOperation<?>> lane) {
    int done = 0;
    for (Iterator<NetOperation<?>> operations = lane.iterator(); operations.hasNext(); ) {
      NetOperation<?> operation = operations.next();
      if (operation.advance()) {
        operations.remove();
        done++;
      } else if (!operation.hasBegun()) {
        // Those behind it must not overtake it.
        break;
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
   * Fails what is under way. Returns when the loop makes no more calls, unless it is the caller.
   */
  void close() {
    closed = true;
    LockSupport.unpark(thread);
    while (!finished && thread.isAlive() && Thread.currentThread() != thread) {
      Thread.yield();
    }
  }
}
