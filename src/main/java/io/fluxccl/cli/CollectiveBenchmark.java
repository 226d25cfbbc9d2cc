package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.cli.PerfRow.Measurement;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.stream.LongStream;

/** Measures and checks a collective on one rank. Every rank runs the same plan. */
final class CollectiveBenchmark {
  private static final long MOST_JIT_BYTES = 1 << 20;

  private final PerfRank rank;
  private final PerfPlan plan;
  private final PerfListener listener;
  private final CallTimer timer;

  // Of the case before: most cases differ in their count only.
  private PerfCase patternOf;
  private BufferContents contents;

  /**
   * A run.
   *
   * @param rank the rank; the caller closes it
   * @param plan what to measure, the same on every rank
   * @param listener told by rank 0 only
   */
  CollectiveBenchmark(PerfRank rank, PerfPlan plan, PerfListener listener) {
    this.rank = rank;
    this.plan = plan;
    this.listener = listener;
    this.timer = new CallTimer(rank, plan);
  }

  /**
   * Runs the plan.
   *
   * @return how many elements were wrong, on all ranks together
   * @throws InterruptedException if the thread was interrupted
   */
  long run() throws InterruptedException {
    begin(rank, plan, listener);
    warmUpJit();
    long wrong = 0;
    for (PerfCase next : plan.cases()) {
      if (first()) {
        listener.measuring(next);
      }
      PerfRow row = measure(next);
      wrong += row.wrong().orElse(0);
      if (first()) {
        listener.measured(row);
      }
    }
    rank.barrier(deadline());
    if (first()) {
      listener.finished(wrong);
    }
    return wrong;
  }

  /** Readies a rank for a plan, and tells the listener of all ranks. */
  static void begin(PerfRank rank, PerfPlan plan, PerfListener listener) {
    rank.prepare(BufferContents.sizeFor(plan.maxBytes(rank.nRanks())));
    String mine =
        String.format(
            "Rank %2d Pid %6d on %s", rank.rank(), ProcessHandle.current().pid(), rank.device());
    List<String> devices =
        rank
            .allGather(mine.getBytes(StandardCharsets.UTF_8), Deadline.after(plan.timeout()))
            .stream()
            .map(bytes -> new String(bytes, StandardCharsets.UTF_8))
            .toList();
    if (rank.rank() == 0) {
      listener.started(plan, devices, rank.peer().map(PerfContender::name));
    }
  }

  /** Lets the JVM compile what is to be measured, and what runs in between. */
  private void warmUpJit() throws InterruptedException {
    List<JitWarmUp.Work> works = new ArrayList<>();
    for (PerfCase next : warmUpCases(plan, rank.nRanks())) {
      for (Placement placement : plan.placements(next)) {
        works.add(() -> warmUp(next, placement));
      }
    }
    new JitWarmUp(timer, plan.jitWarmUp()).run(works);
  }

  private void warmUp(PerfCase shape, Placement placement) throws InterruptedException {
    contents(shape).upload(layout(shape), placement);
    timer.warmUp(rank.library(), shape, placement);
    check(shape, placement);
  }

  /** The cases of a plan that are run until the JVM has compiled them: no large ones. */
  static List<PerfCase> warmUpCases(PerfPlan plan, int nRanks) {
    List<PerfCase> small =
        plan.cases().stream().filter(c -> c.bytes(nRanks) <= MOST_JIT_BYTES).toList();
    return small.isEmpty() ? plan.cases().subList(0, 1) : small;
  }

  private PerfRow measure(PerfCase shape) throws InterruptedException {
    Map<Placement, Measurement> measurements = new EnumMap<>(Placement.class);
    for (Placement placement : plan.placements(shape)) {
      contents(shape).upload(layout(shape), placement);
      rank.barrier(deadline());
      double micros = timer.micros(rank.library(), shape, placement);
      OptionalDouble peerMicros = peerMicros(shape, placement);
      measurements.put(
          placement,
          new Measurement(
              algorithm(shape, placement), micros, check(shape, placement), peerMicros));
    }
    return new PerfRow(shape, rank.nRanks(), measurements);
  }

  private String algorithm(PerfCase shape, Placement placement) {
    return rank.algorithms(shape, placement).stream().findFirst().orElse("");
  }

  private OptionalDouble peerMicros(PerfCase shape, Placement placement)
      throws InterruptedException {
    Optional<PerfContender> peer = rank.peer();
    return peer.isPresent() && peer.get().supports(shape, placement)
        ? OptionalDouble.of(timer.micros(peer.get(), shape, placement))
        : OptionalDouble.empty();
  }

  /**
   * No barrier between upload and call: a collective that reads a peer's data before that peer has
   * called it shows here.
   */
  private OptionalLong check(PerfCase shape, Placement placement) throws InterruptedException {
    if (plan.checks() == 0) {
      return OptionalLong.empty();
    }
    long wrong = 0;
    for (int i = 0; i < plan.checks(); i++) {
      contents(shape).upload(layout(shape), placement);
      timer.once(rank.library(), shape, placement);
      wrong += contents(shape).wrongElements(layout(shape), placement);
    }
    return OptionalLong.of(LongStream.of(timer.gather(wrong)).sum());
  }

  private DataLayout layout(PerfCase shape) {
    return new DataLayout(shape, rank.rank(), rank.nRanks());
  }

  private BufferContents contents(PerfCase shape) {
    if (patternOf == null || patternOf.type() != shape.type() || patternOf.op() != shape.op()) {
      ReductionPattern pattern = new ReductionPattern(shape.type(), shape.op(), rank.nRanks());
      contents = new BufferContents(rank, pattern, shape.type());
      patternOf = shape;
    }
    return contents;
  }

  private boolean first() {
    return rank.rank() == 0;
  }

  private Deadline deadline() {
    return Deadline.after(plan.timeout());
  }
}
