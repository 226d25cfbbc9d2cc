// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.sun.management.OperatingSystemMXBean;
import io.fluxccl.Deadline;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;

/**
 * Runs the cases again and again until the JVMs of all ranks have compiled their code. All ranks
 * pause between two rounds, because ranks that wait for each other leave few cores to COMPILERS.
 */
record JitWarmUp(CallTimer timer, Duration limit) {
  private static final CompilationMXBean COMPILERS = ManagementFactory.getCompilationMXBean();
  private static final OperatingSystemMXBean PROCESS =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  /** JVMs often compile code of the first rounds again. */
  private static final int LEAST_ROUNDS = 4;

  private static final int QUIET_ROUNDS = 2;

  /** A round is quiet if the compilers worked for less than this part of the time. */
  private static final int QUIET_PART = 10;

  private static final Duration PAUSE_STEP = Duration.ofMillis(5);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

  /** A process that uses less than this part of a core compiles nothing. */
  private static final int IDLE_PART = 5;

  /** Work whose code is to be compiled. */
  interface Work {
    /** Runs it, in step with the other ranks. */
    void run() throws InterruptedException;
  }

  /**
   * Runs rounds of all works.
   *
   * @param works the same on every rank
   */
  void run(List<Work> works) throws InterruptedException {
    if (limit.isZero()) {
      return;
    }
    Deadline end = Deadline.after(limit);
    int quiet = 0;
    for (int rounds = 1; rounds <= LEAST_ROUNDS || quiet < QUIET_ROUNDS; rounds++) {
      long begin = System.nanoTime();
      long compiling = compilationMillis();
      for (Work work : works) {
        work.run();
        if (timer.gather(end.expired() ? 1 : 0)[0] != 0) {
          return;
        }
      }
      pause(end);
      long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
      boolean isQuiet = (compilationMillis() - compiling) * QUIET_PART <= millis;
      quiet = LongStream.of(timer.gather(isQuiet ? 1 : 0)).allMatch(is -> is == 1) ? quiet + 1 : 0;
    }
  }

  /** Waits until the compilers seem to have nothing left to do. */
  private void pause(Deadline end) throws InterruptedException {
    long begin = System.nanoTime();
    long busy;
    do {
      long before = PROCESS.getProcessCpuTime();
      Thread.sleep(PAUSE_STEP.toMillis());
      busy = PROCESS.getProcessCpuTime() - before;
    } while (busy * IDLE_PART > PAUSE_STEP.toNanos()
        && System.nanoTime() - begin < LONGEST_PAUSE.toNanos()
        && !end.expired());
  }

  private long compilationMillis() {
    return COMPILERS != null && COMPILERS.isCompilationTimeMonitoringSupported()
        ? COMPILERS.getTotalCompilationTime()
        : 0;
  }
}
