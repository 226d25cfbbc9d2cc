// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.sun.management.OperatingSystemMXBean;
import io.fluxccl.Deadline;
import io.fluxccl.Text;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;

/** Runs a plan on one rank. Every rank runs the same plan. */
abstract class PerfRun {
  private static final long MOST_JIT_BYTES = 1 << 20;

  final PerfRank rank;
  final PerfPlan plan;
  final Optional<PerfReport> report;
  final CallTimer timer;

  /**
   * A run.
   *
   * @param rank the rank; the caller closes it
   * @param plan what to measure, the same on every rank
   * @param report takes the results on rank 0; empty on other ranks
   */
  PerfRun(PerfRank rank, PerfPlan plan, Optional<PerfReport> report) {
    this.rank = rank;
    this.plan = plan;
    this.report = report;
    this.timer = new CallTimer(rank, plan);
  }

  /** Returns the placements in which a case is measured. */
  List<BufferAliasing> placements(PerfCase shape) {
    return plan.placements(shape);
  }

  /** Runs a case for a moment, in the way it is measured. */
  void warmUp(PerfCase shape, BufferAliasing placement) throws InterruptedException {
    timer.warmUp(rank.library(), shape, placement);
  }

  /** Prepares the rank for the plan; returns a line for each rank. */
  final List<String> prepare() {
    rank.prepare(BufferContents.sizeFor(plan.maxBytes(rank.nRanks())));
    long pid = ProcessHandle.current().pid();
    String mine = Text.of("Rank %2d Pid %6d on %s", rank.rank(), pid, rank.device());
    return rank
        .allGather(mine.getBytes(StandardCharsets.UTF_8), Deadline.after(plan.timeout()))
        .stream()
        .map(bytes -> new String(bytes, StandardCharsets.UTF_8))
        .toList();
  }

  /** Runs the cases, but no large ones, until the JVM has compiled them. */
  final void warmUp() throws InterruptedException {
    List<PerfCase> small =
        plan.cases().stream().filter(c -> c.bytes(rank.nRanks()) <= MOST_JIT_BYTES).toList();
    List<JitWarmUp.Work> works = new ArrayList<>();
    for (PerfCase next : small.isEmpty() ? plan.cases().subList(0, 1) : small) {
      placements(next).forEach(placement -> works.add(() -> warmUp(next, placement)));
    }
    new JitWarmUp(timer, plan.jitWarmUp()).run(works);
  }

  /**
   * Runs the cases again and again until the JVMs of all ranks have compiled their code. All ranks
   * pause between two rounds, because ranks that wait for each other leave few cores to COMPILERS.
   */
  private record JitWarmUp(CallTimer timer, Duration limit) {
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
        quiet =
            LongStream.of(timer.gather(isQuiet ? 1 : 0)).allMatch(is -> is == 1) ? quiet + 1 : 0;
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
}
