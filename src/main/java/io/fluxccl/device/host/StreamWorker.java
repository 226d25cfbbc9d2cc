// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.ManyToOneConcurrentLinkedQueue;

/**
 * The queue and the thread of a {@link LiveHostStream}. If the queue is empty, the thread polls
 * briefly, as {@link SpinPolicy} permits, and then parks.
 *
 * <p>Not an {@link io.fluxccl.concurrent.AgentThread}: each launch waits for this loop. It
 * therefore idles by the spin policy of kernels instead of a backoff, never sleeps for a time, and
 * returns its leased block threads before it parks.
 */
final class StreamWorker implements Runnable {
  private static final int YIELDS_BEFORE_PARKING = 4;
  private static final int MAX_IDLE_POLLS = 500;

  private final LiveHostStream stream;
  private final String threadName;
  private final ManyToOneConcurrentLinkedQueue<StreamTask> queue =
      new ManyToOneConcurrentLinkedQueue<>();

  /** Incremented before a task is added to the queue, so that an idle stream has no unseen task. */
  private final AtomicLong enqueued = new AtomicLong();

  /** Written by the thread that takes from the queue. */
  private volatile long done;

  private volatile boolean parked;
  private volatile boolean ended;
  private volatile Thread thread;

  StreamWorker(LiveHostStream stream, String threadName) {
    this.stream = stream;
    this.threadName = threadName;
  }

  void enqueue(StreamTask task) {
    if (thread == null) {
      start();
    }
    // A full fence between this count and the load of parked. The thread stores parked and then
    // loads the count, so one of the two sees the other.
    enqueued.getAndIncrement();
    queue.offer(task);
    if (parked) {
      LockSupport.unpark(thread);
    }
    if (ended) {
      drain();
    }
  }

  /** Starts the thread, if there is none yet and the stream is not closed. */
  synchronized void start() {
    if (thread == null && !ended) {
      Thread created = new NonblockingThread(this, threadName);
      created.start();
      thread = created;
    }
  }

  /** Returns whether anything was ever enqueued. */
  boolean hasStarted() {
    return thread != null;
  }

  boolean isIdle() {
    // Pairs with the volatile store of done: the memory accesses of that work are over.
    long finished = done;
    return finished == enqueued.get();
  }

  /**
   * Called after the stream was marked closed: ends the thread, or the stream if there is no
   * thread.
   */
  void wakeToEnd() {
    boolean neverStarted;
    synchronized (this) {
      neverStarted = thread == null;
      if (neverStarted) {
        ended = true;
      }
    }
    if (neverStarted) {
      drain();
      stream.ended();
    } else {
      LockSupport.unpark(thread);
    }
  }

  @Override
  public void run() {
    SpinPolicy.enter();
    int idlePolls = 0;
    while (true) {
      StreamTask task = queue.poll();
      if (task != null) {
        stream.run(task);
        task = null;
        done++;
        idlePolls = 0;
      } else if (enqueued.get() != done) {
        Thread.onSpinWait(); // counted, and about to be added
      } else if (stream.isClosed()) {
        break;
      } else if (idlePolls < idlePollsAllowed()) {
        Thread.onSpinWait();
        idlePolls++;
      } else if (idlePolls < idlePollsAllowed() + YIELDS_BEFORE_PARKING) {
        Thread.yield();
        idlePolls++;
      } else {
        park();
        idlePolls = 0;
      }
    }
    SpinPolicy.exit();
    ended = true;
    drain();
    stream.ended();
  }

  /**
   * Returns the polls before a yield. A wait for work may be long, so it yields the core earlier
   * than a wait for a peer.
   */
  private static int idlePollsAllowed() {
    return Math.min(SpinPolicy.pollsBeforeYield(), MAX_IDLE_POLLS);
  }

  private void park() {
    stream.releaseTeam();
    SpinPolicy.exit();
    Thread.interrupted(); // a kernel may have left it set; parking would return at once
    parked = true;
    if (enqueued.get() == done && !stream.isClosed()) {
      LockSupport.park(this);
    }
    parked = false;
    SpinPolicy.enter();
  }

  /** Runs the tasks that are still enqueued after the thread has ended. */
  private synchronized void drain() {
    StreamTask task = queue.poll();
    while (task != null) {
      stream.run(task);
      done++;
      task = queue.poll();
    }
  }
}
