// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.Text;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

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
}
