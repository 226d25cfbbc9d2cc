// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * Keeps kernels from starting while memory is freed, and memory from being freed while kernels run.
 *
 * <p>The driver lets a free wait for the kernels that run, and meanwhile holds up other calls of
 * this process. Should such a kernel wait for what one of those calls is to enqueue (the proxy's
 * copy, another rank's kernel), neither would ever make progress. So memory is freed when all
 * streams of all GPUs of this process have nothing to do. Copies pass the gate: they wait for no
 * kernel.
 *
 * <p>{@link #enter} and {@link #close} allocate nothing and take no lock; a launch spins while the
 * gate is closed, in which time the driver would hold it up anyway.
 */
final class LaunchGate implements AutoCloseable {
  /** The gate of this process. */
  static final LaunchGate PROCESS = new LaunchGate();

  private static final long LOOK_AGAIN_NANOS = 20_000;

  private final Set<LiveCudaStream> streams = ConcurrentHashMap.newKeySet();

  /** How many threads are launching. */
  private final AtomicInteger launching = new AtomicInteger();

  private volatile boolean closed;

  private LaunchGate() {}

  void add(LiveCudaStream stream) {
    streams.add(stream);
  }

  void remove(LiveCudaStream stream) {
    streams.remove(stream);
  }

  /**
   * Comes before a launch, outside of all locks.
   *
   * @return this gate, closed behind the launch
   */
  LaunchGate enter() {
    // Either the closing thread sees this one, or this one sees that the gate is closed.
    launching.incrementAndGet();
    while (closed) {
      launching.decrementAndGet();
      while (closed) {
        Thread.yield();
      }
      launching.incrementAndGet();
    }
    return this;
  }

  /** Leaves the gate behind a launch. */
  @Override
  public void close() {
    launching.decrementAndGet();
  }

  /**
   * Runs an action while no kernel runs and none can start.
   *
   * @param patience how long to keep launches out until those that run have ended; zero to look
   *     once
   * @param action what
   * @return false if there were still some, and the action was not run
   */
  synchronized boolean runWhenQuiet(Duration patience, Runnable action) {
    if (patience.isZero() && !isQuiet()) {
      return false; // without keeping anybody out
    }
    long began = System.nanoTime();
    closed = true;
    try {
      while (launching.get() != 0 || !isQuiet()) {
        if (System.nanoTime() - began >= patience.toNanos()) {
          return false;
        }
        LockSupport.parkNanos(LOOK_AGAIN_NANOS);
      }
      action.run();
      return true;
    } finally {
      closed = false;
    }
  }

  private boolean isQuiet() {
    for (LiveCudaStream stream : streams) {
      if (!stream.isIdle()) {
        return false;
      }
    }
    return true;
  }
}
