// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Tuning;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Measures every algorithm at every case of a plan, and writes the fastest ones as rules to a
 * tuning file. Rank 0 writes.
 */
final class TuningRun extends PerfRun {
  /** An algorithm replaces the one of the smaller size only if it is faster by this factor. */
  private static final double WORTHWHILE = 0.97;

  private final boolean registered;
  private final ResultFile file;

  /**
   * A run.
   *
   * @param rank the rank; the caller closes it
   * @param plan the cases: sizes ascending within each collective, type and operation
   * @param registered whether the rank's buffers are registered
   * @param file the tuning file
   * @param report takes the results on rank 0; empty on other ranks
   */
  TuningRun(
      PerfRank rank,
      PerfPlan plan,
      boolean registered,
      ResultFile file,
      Optional<PerfReport> report) {
    super(rank, plan, report);
    this.registered = registered;
    this.file = file;
  }

  /**
   * An algorithm at a case.
   *
   * @param algorithm its name
   * @param micros of one call, the same on every rank
   */
  record AlgorithmTime(String algorithm, double micros) {
    private double weighted(String smaller) {
      return algorithm.equals(smaller) ? micros * WORTHWHILE : micros;
    }
  }

  /** Runs the plan and writes the file. */
  void run() throws InterruptedException {
    // Another file of this name is refused before the measurements, not after them.
    Tuning before =
        report.isPresent() && Files.exists(file.path()) ? Tuning.read(file.path()) : Tuning.NONE;
    List<String> devices = prepare();
    report.ifPresent(to -> to.tuningStarted(plan, devices));
    warmUp();
    List<Tuning.Rule> rules = measure();
    rank.barrier(Deadline.after(plan.timeout()));
    if (report.isPresent()) {
      file.write(before.with(rules).toText());
    }
  }

  @Override
  List<BufferAliasing> placements(PerfCase shape) {
    return super.placements(shape).subList(0, 1);
  }

  private List<Tuning.Rule> measure() throws InterruptedException {
    List<Tuning.Rule> rules = new ArrayList<>();
    PerfCase previous = null;
    for (PerfCase next : cases()) {
      report.ifPresent(to -> to.measuring(next));
      boolean grows = previous != null && isSameKind(previous, next);
      List<AlgorithmTime> times =
          measure(next, grows ? rules.get(rules.size() - 1).algorithm() : "");
      if (times.isEmpty()) {
        continue;
      }
      report.ifPresent(to -> to.tuned(next, next.bytes(rank.nRanks()), times));
      if (grows) {
        endLastRule(rules, previous, next, times.get(0).algorithm());
      }
      rules.add(rule(next, bytesOf(next), times.get(0).algorithm()));
      previous = next;
    }
    return rules;
  }

  /**
   * Returns the cases of the plan with one type and operation for each collective and class of
   * types. If calls are not distinguished by size, that is one case of medium size.
   */
  private List<PerfCase> cases() {
    Map<List<Object>, PerfCase> representatives = new HashMap<>();
    List<PerfCase> cases = new ArrayList<>();
    for (PerfCase shape : plan.cases()) {
      List<Object> kind = List.of(shape.collective(), Tuning.TypeClass.of(shape.type()));
      PerfCase first = representatives.computeIfAbsent(kind, absent -> shape);
      if (shape.type() == first.type() && shape.op() == first.op()) {
        cases.add(shape);
      }
    }
    return cases.stream()
        .filter(shape -> !isOfUnknownSize(shape) || shape.equals(middle(cases, shape)))
        .toList();
  }

  private static PerfCase middle(List<PerfCase> cases, PerfCase like) {
    List<PerfCase> same =
        cases.stream()
            .filter(c -> c.collective() == like.collective() && c.type() == like.type())
            .toList();
    return same.get(same.size() / 2);
  }

  private static boolean isOfUnknownSize(PerfCase shape) {
    return shape.collective() == Collective.ALL_TO_ALL_V
        || shape.collective() == Collective.SEND_RECEIVE;
  }

  private static boolean isSameKind(PerfCase one, PerfCase other) {
    return one.collective() == other.collective()
        && Tuning.TypeClass.of(one.type()) == Tuning.TypeClass.of(other.type())
        && one.count() < other.count();
  }

  /** Returns all algorithms with their times, the one to choose first. */
  private List<AlgorithmTime> measure(PerfCase shape, String smaller) throws InterruptedException {
    BufferAliasing placement = placements(shape).get(0);
    List<AlgorithmTime> times = new ArrayList<>();
    for (String algorithm : rank.algorithms(shape, placement)) {
      rank.prefer(shape, Optional.of(algorithm));
      times.add(new AlgorithmTime(algorithm, timer.micros(rank.library(), shape, placement)));
    }
    rank.prefer(shape, Optional.empty());
    times.sort(Comparator.comparingDouble(time -> time.weighted(smaller)));
    return times;
  }

  /**
   * Ends the last rule in the middle of two sizes, or removes it if the next size has the same
   * algorithm.
   */
  private void endLastRule(
      List<Tuning.Rule> rules, PerfCase previous, PerfCase next, String algorithm) {
    Tuning.Rule last = rules.remove(rules.size() - 1);
    if (!last.algorithm().equals(algorithm)) {
      long middle = Math.round(Math.sqrt((double) last.upToBytes() * bytesOf(next)));
      rules.add(rule(previous, middle, last.algorithm()));
    }
  }

  /** Returns the size as calls count it: 0 where ranks don't know the sizes of others. */
  private long bytesOf(PerfCase shape) {
    return isOfUnknownSize(shape) ? 0 : shape.bytes(rank.nRanks());
  }

  private Tuning.Rule rule(PerfCase shape, long upToBytes, String algorithm) {
    RankTopology topology = rank.topology();
    return new Tuning.Rule(
        shape.collective(),
        topology.kind(),
        topology.nRanks(),
        topology.hosts(),
        registered && shape.collective().isChosenByRegistration(),
        Tuning.TypeClass.of(shape.type()),
        upToBytes,
        algorithm);
  }
}
