// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Lets one thread at a time enqueue on the streams of a GPU that kernels run on.
 *
 * <p>The driver gives a stream that has nothing to do, when work comes, one of a few hardware
 * queues, and takes one that is empty if there is any. But two threads that come at the same moment
 * are often given the same one. Then what stands behind a kernel in the first stream (a store for
 * its completion is enough) holds up the second one until the kernel has ended; and if the kernel
 * waits for what the second stream is to do, for ever. Measured on H200s with driver 580: two
 * threads that each launched a kernel which waits for the other's, on streams of their own, were
 * stuck in about 1 of 10 rounds; when they took turns, in none of 13 500.
 *
 * <p>Allocates nothing; a waiting thread spins, for as long as a call of the driver takes. Taken
 * inside a stream's lock; inside, only the lock of an event or a graph, whose holders take no lock.
 */
final class EnqueueLock implements AutoCloseable {
  /**
   * How long to wait at most. A launch into a full queue is held up by the driver until there is
   * room; that room may need what others are about to enqueue, and then it's better to take a
   * chance.
   */
  static final Duration PATIENCE = Duration.ofMillis(100);

  private static final int SPINS = 1_000;

  private final AtomicBoolean taken = new AtomicBoolean();

  /**
   * Waits until no other thread has the lock.
   *
   * @return this lock, which this thread has now and must {@link #close}; null if another one kept
   *     it for {@link #PATIENCE}
   */
  EnqueueLock tryLock() {
    if (taken.compareAndSet(false, true)) {
      return this;
    }
    long began = System.nanoTime();
    int looks = 0;
    while (taken.get() || !taken.compareAndSet(false, true)) {
      if (System.nanoTime() - began >= PATIENCE.toNanos()) {
        return null;
      }
      if (++looks < SPINS) {
        Thread.onSpinWait();
      } else {
        Thread.yield();
      }
    }
    return this;
  }

  /** Releases the lock: called by the thread that has it. */
  @Override
  public void close() {
    taken.set(false);
  }
}
