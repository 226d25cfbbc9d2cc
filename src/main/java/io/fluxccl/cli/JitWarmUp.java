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
 * Runs what is to be measured, again and again, until the JVMs of all ranks have compiled it.
 * Between two rounds everybody pauses: ranks that wait for each other leave a compiler few cores.
 */
final class JitWarmUp {
  /** Code compiled for one of the first rounds may be found wanting in the next. */
  private static final int LEAST_ROUNDS = 4;

  private static final int QUIET_ROUNDS = 2;

  /** A round in which the compilers worked for less than this part of the time was a quiet one. */
  private static final int QUIET_PART = 10;

  private static final Duration PAUSE_STEP = Duration.ofMillis(5);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

  /** A process that uses less than this part of a core has nothing left to compile. */
  private static final int IDLE_PART = 5;

  /** Something that is to be compiled. */
  interface Work {
    /** Runs it, in step with the other ranks. */
    void run() throws InterruptedException;
  }

  private final CallTimer timer;
  private final Duration limit;
  private final CompilationMXBean compilers = ManagementFactory.getCompilationMXBean();
  private final OperatingSystemMXBean process =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  /**
   * On one rank; all do the same.
   *
   * @param timer lets the ranks agree
   * @param limit no work begins later, by rank 0's clock
   */
  JitWarmUp(CallTimer timer, Duration limit) {
    this.timer = timer;
    this.limit = limit;
  }

  /**
   * Runs rounds of some works.
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

  /** Until the compilers have nothing left to do, as far as one can see. */
  private void pause(Deadline end) throws InterruptedException {
    long begin = System.nanoTime();
    long busy;
    do {
      long before = process.getProcessCpuTime();
      Thread.sleep(PAUSE_STEP.toMillis());
      busy = process.getProcessCpuTime() - before;
    } while (busy * IDLE_PART > PAUSE_STEP.toNanos()
        && System.nanoTime() - begin < LONGEST_PAUSE.toNanos()
        && !end.expired());
  }

  private long compilationMillis() {
    return compilers != null && compilers.isCompilationTimeMonitoringSupported()
        ? compilers.getTotalCompilationTime()
        : 0;
  }
}
