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
 * <p>When memory is freed, the driver waits for running kernels and meanwhile blocks other calls of
 * this process. If such a kernel waits for work that one of those calls would enqueue (the proxy's
 * copy, another rank's kernel), both wait forever. Memory is therefore freed while all streams of
 * all GPUs of this process are idle. Copies do not enter the gate, because they wait for no kernel.
 *
 * <p>{@link #enter} and {@link #close} allocate nothing and take no lock. A launch spins while the
 * gate is closed; the driver would block it during that time anyway.
 */
final class LaunchGate implements AutoCloseable {
  /** The gate of this process. */
  static final LaunchGate PROCESS = new LaunchGate();

  private static final long LOOK_AGAIN_NANOS = 20_000;

  /** The streams that kernels run on. */
  final Set<LiveCudaStream> streams = ConcurrentHashMap.newKeySet();

  /** Number of threads that are launching. */
  private final AtomicInteger launching = new AtomicInteger();

  private volatile boolean closed;

  private LaunchGate() {}

  /**
   * Enters the gate. Call it before a launch, without holding a lock.
   *
   * @return this gate, which the caller closes after the launch
   */
  LaunchGate enter() {
    // Either the closing thread sees this increment, or this thread sees that the gate is closed.
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

  /** Leaves the gate after a launch. */
  @Override
  public void close() {
    launching.decrementAndGet();
  }

  /**
   * Runs an action while no kernel runs and none can start.
   *
   * @param maxBlock longest time to block launches until running work has ended; zero to check once
   * @param action the action to run
   * @return false if work was still running, and the action was not run
   */
  synchronized boolean runWhenIdle(Duration maxBlock, Runnable action) {
    if (maxBlock.isZero() && !isQuiet()) {
      return false; // without blocking launches
    }
    long began = System.nanoTime();
    closed = true;
    try {
      while (launching.get() != 0 || !isQuiet()) {
        if (System.nanoTime() - began >= maxBlock.toNanos()) {
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

  /** Returns whether no kernel runs in this process. */
  boolean isQuiet() {
    return streams.stream().allMatch(LiveCudaStream::isIdle);
  }
}
