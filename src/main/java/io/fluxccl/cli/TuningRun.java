package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Tuning;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Measures every algorithm at every case of a plan, on one rank, and writes which was the fastest
 * as rules of a tuning file. Every rank runs the same; rank 0 writes.
 */
final class TuningRun {
  /** An algorithm must be so much faster than the one before to take its place. */
  private static final double WORTHWHILE = 0.97;

  private final PerfRank rank;
  private final PerfPlan plan;
  private final boolean registered;
  private final Path file;
  private final CallTimer timer;

  /**
   * A run.
   *
   * @param rank the rank; the caller closes it
   * @param plan the cases: sizes ascending within each collective, type and operation
   * @param registered whether the rank's buffers are registered
   * @param file what rank 0 writes
   */
  TuningRun(PerfRank rank, PerfPlan plan, boolean registered, Path file) {
    this.rank = rank;
    this.plan = plan;
    this.registered = registered;
    this.file = file;
    this.timer = new CallTimer(rank, plan);
  }

  /**
   * Runs the plan.
   *
   * @param listener told by rank 0 of each case's fastest
   * @return 0, as nothing is checked
   */
  long run(PerfListener listener) throws InterruptedException {
    boolean first = rank.rank() == 0;
    // A file that is no tuning file is better refused before than after the measuring.
    Tuning before = first && Files.exists(file) ? Tuning.read(file) : Tuning.NONE;
    CollectiveBenchmark.begin(rank, plan, listener);
    warmUpJit();
    List<Tuning.Rule> rules = new ArrayList<>();
    PerfCase previous = null;
    for (PerfCase next : cases()) {
      if (first) {
        listener.measuring(next);
      }
      List<AlgorithmTime> times = measure(next, lastOf(rules, previous, next));
      if (first && !times.isEmpty()) {
        listener.tuned(next, next.bytes(rank.nRanks()), times);
      }
      if (!times.isEmpty()) {
        add(rules, previous, next, times.get(0).algorithm());
        previous = next;
      }
    }
    rank.barrier(Deadline.after(plan.timeout()));
    if (first) {
      write(before.with(rules));
      listener.finished(0);
    }
    return 0;
  }

  private void warmUpJit() throws InterruptedException {
    List<JitWarmUp.Work> works = new ArrayList<>();
    for (PerfCase next : CollectiveBenchmark.warmUpCases(plan, rank.nRanks())) {
      Placement placement = plan.placements(next).get(0);
      works.add(() -> timer.warmUp(rank.library(), next, placement));
    }
    new JitWarmUp(timer, plan.jitWarmUp()).run(works);
  }

  /**
   * One type and operation for each collective and class of types; and one size, of middling
   * length, where calls are not told apart by size.
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
    List<PerfCase> distinct = new ArrayList<>(cases);
    distinct.removeIf(shape -> isOfUnknownSize(shape) && !shape.equals(middle(cases, shape)));
    return distinct;
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

  /** The algorithm of the next smaller case, if that was one of the same kind. */
  private static Optional<String> lastOf(
      List<Tuning.Rule> rules, PerfCase previous, PerfCase next) {
    return previous != null && isSameKind(previous, next)
        ? Optional.of(rules.get(rules.size() - 1).algorithm())
        : Optional.empty();
  }

  private static boolean isSameKind(PerfCase one, PerfCase other) {
    return one.collective() == other.collective()
        && Tuning.TypeClass.of(one.type()) == Tuning.TypeClass.of(other.type())
        && one.count() < other.count();
  }

  /** All algorithms with their times, the one to be taken first. */
  private List<AlgorithmTime> measure(PerfCase shape, Optional<String> smaller)
      throws InterruptedException {
    Placement placement = plan.placements(shape).get(0);
    List<AlgorithmTime> times = new ArrayList<>();
    for (String algorithm : rank.algorithms(shape, placement)) {
      rank.prefer(shape, Optional.of(algorithm));
      double micros = timer.micros(rank.library(), shape, placement);
      times.add(new AlgorithmTime(algorithm, micros));
    }
    rank.prefer(shape, Optional.empty());
    times.sort((one, other) -> Double.compare(one.weighted(smaller), other.weighted(smaller)));
    return times;
  }

  /**
   * An algorithm at a case.
   *
   * @param algorithm its name
   * @param micros of one call, the same on every rank
   */
  record AlgorithmTime(String algorithm, double micros) {
    private double weighted(Optional<String> smaller) {
      return smaller.isPresent() && smaller.get().equals(algorithm) ? micros * WORTHWHILE : micros;
    }
  }

  /** Adds a rule, or extends the last one; between two sizes the limit is their middle. */
  private void add(List<Tuning.Rule> rules, PerfCase previous, PerfCase next, String algorithm) {
    long bytes = bytesOf(next);
    if (previous != null && isSameKind(previous, next)) {
      Tuning.Rule last = rules.remove(rules.size() - 1);
      if (last.algorithm().equals(algorithm)) {
        rules.add(rule(next, bytes, algorithm));
        return;
      }
      long middle = Math.round(Math.sqrt((double) last.upToBytes() * bytes));
      rules.add(rule(previous, middle, last.algorithm()));
    }
    rules.add(rule(next, bytes, algorithm));
  }

  /** As calls count them: 0 where ranks don't know each other's sizes. */
  private long bytesOf(PerfCase shape) {
    return isOfUnknownSize(shape) ? 0 : shape.bytes(rank.nRanks());
  }

  private Tuning.Rule rule(PerfCase shape, long upToBytes, String algorithm) {
    RankTopology topology = rank.topology();
    boolean countsAsRegistered = registered && shape.collective().isChosenByRegistration();
    return new Tuning.Rule(
        shape.collective(),
        topology.kind(),
        topology.nRanks(),
        topology.hosts(),
        countsAsRegistered,
        Tuning.TypeClass.of(shape.type()),
        upToBytes,
        algorithm);
  }

  /**
   * Tries whether a file can be written, which else were known only after the measuring.
   *
   * @throws InvalidUsage if not
   */
  static void requireWritable(Path file) {
    Path next = beside(file);
    try {
      if (Files.isDirectory(file)) {
        throw new IOException("it is a folder");
      }
      Files.writeString(next, "");
      Files.delete(next);
    } catch (IOException e) {
      throw new InvalidUsage("tune=" + file + " can't be written: " + e, e);
    }
  }

  private static Path beside(Path file) {
    return file.resolveSibling("." + file.getFileName() + "." + ProcessHandle.current().pid());
  }

  private void write(Tuning tuning) {
    Path next = beside(file);
    try {
      Files.writeString(next, tuning.toText());
      Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw new InvalidUsage("tune=" + file + " can't be written: " + e, e);
    }
  }
}
