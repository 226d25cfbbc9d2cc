// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Measures how many bytes code allocates on the Java heap. */
public final class AllocatedBytes {
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private static final int RUNS_WITHOUT_PAUSE = 5;
  private static final long PAUSE_NANOS = 1_000_000;
  private static final long LIMIT_NANOS = TimeUnit.SECONDS.toNanos(20);

  private AllocatedBytes() {}

  /**
   * Runs code until a run allocates fewer bytes than {@code bound}, but no longer than 20 s. One
   * run may meet the loading of a class or a compiler that replaces a method; the best of many
   * shows what the code itself does. After the first runs, a pause after each leaves a core to the
   * compiler, which a busy machine can keep waiting for seconds: interpreted code also allocates
   * the objects that the compiler would remove.
   *
   * @param bound bytes, at least 1; on some JVMs, the query itself allocates a little
   * @return bytes that the calling thread allocated in the best run
   */
  public static long least(long bound, Runnable code) {
    return least(bound, code, Thread.currentThread().getId());
  }

  /** As {@link #least(long, Runnable)}, for these threads together. */
  public static long least(long bound, Runnable code, long... threads) {
    long start = System.nanoTime();
    long least = Long.MAX_VALUE;
    for (int run = 1; least >= bound && System.nanoTime() - start < LIMIT_NANOS; run++) {
      long before = sum(threads);
      code.run();
      least = Math.min(least, sum(threads) - before);
      if (least >= bound && run > RUNS_WITHOUT_PAUSE) {
        LockSupport.parkNanos(PAUSE_NANOS);
      }
    }
    return least;
  }

  private static long sum(long[] threads) {
    long bytes = 0;
    for (long thread : threads) {
      bytes += THREADS.getThreadAllocatedBytes(thread);
    }
    return bytes;
  }
}
