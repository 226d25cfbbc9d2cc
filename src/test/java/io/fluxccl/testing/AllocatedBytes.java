// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.locks.LockSupport;

/** Measures how many bytes code allocates on the Java heap. */
public final class AllocatedBytes {
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private static final long PAUSE_NANOS = 1_000_000;

  private AllocatedBytes() {}

  /**
   * Runs code until a run allocates nothing, but at most {@code times} times. One run may meet the
   * loading of a class or a compiler that replaces a method; the best of several shows what the
   * code itself does. In the second half of the runs, a pause after each leaves a core to the
   * compiler: interpreted code also allocates the objects that the compiler would remove.
   *
   * @return bytes that the calling thread allocated in the best run; on some JVMs, the query itself
   *     allocates a little
   */
  public static long least(int times, Runnable code) {
    return least(times, code, Thread.currentThread().getId());
  }

  /** As {@link #least(int, Runnable)}, for these threads together. */
  public static long least(int times, Runnable code, long... threads) {
    long least = Long.MAX_VALUE;
    for (int i = 0; i < times && least > 0; i++) {
      long before = sum(threads);
      code.run();
      least = Math.min(least, sum(threads) - before);
      if (least > 0 && i >= times / 2) {
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
