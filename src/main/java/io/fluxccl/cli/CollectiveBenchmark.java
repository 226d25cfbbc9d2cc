// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.cli.PerfReport.PerfRow.Measurement;
import io.fluxccl.cli.PerfReport.PerfRow.PeerTime;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.stream.LongStream;

/** Measures and checks the cases of a plan. */
final class CollectiveBenchmark extends PerfRun {
  // Of the previous case, because most cases differ only in their count.
  private PerfCase contentsFor;
  private BufferContents contents;

  /** A run; as {@link PerfRun}. */
  CollectiveBenchmark(PerfRank rank, PerfPlan plan, Optional<PerfReport> report) {
    super(rank, plan, report);
  }

  /**
   * Runs the plan.
   *
   * @return how many elements were wrong, on all ranks together
   * @throws InterruptedException if the thread was interrupted
   */
  long run() throws InterruptedException {
    List<String> devices = prepare();
    report.ifPresent(
        to -> to.started(plan, devices, rank.peers().stream().map(MeasuredLibrary::name).toList()));
    warmUp();
    long wrong = 0;
    for (PerfCase next : plan.cases()) {
      report.ifPresent(to -> to.measuring(next));
      PerfReport.PerfRow row = measure(next);
      report.ifPresent(to -> to.measured(row));
      wrong += row.wrong().orElse(0);
    }
    rank.barrier(Deadline.after(plan.timeout()));
    if (report.isPresent()) {
      report.get().finished(plan.checks() > 0, wrong);
    }
    return wrong;
  }

  @Override
  void warmUp(PerfCase shape, BufferAliasing placement) throws InterruptedException {
    contents(shape).upload(layout(shape), placement);
    super.warmUp(shape, placement);
    check(shape, placement);
  }

  private PerfReport.PerfRow measure(PerfCase shape) throws InterruptedException {
    Map<BufferAliasing, Measurement> measurements = new EnumMap<>(BufferAliasing.class);
    for (BufferAliasing placement : placements(shape)) {
      contents(shape).upload(layout(shape), placement);
      rank.barrier(Deadline.after(plan.timeout()));
      double micros = timer.micros(rank.library(), shape, placement);
      Optional<PeerTime> peer = peer(shape, placement);
      String algorithm = rank.algorithms(shape, placement).stream().findFirst().orElse("");
      measurements.put(
          placement, new Measurement(algorithm, micros, check(shape, placement), peer));
    }
    return new PerfReport.PerfRow(shape, rank.nRanks(), measurements);
  }

  private Optional<PeerTime> peer(PerfCase shape, BufferAliasing placement)
      throws InterruptedException {
    List<PeerTime> times = new ArrayList<>();
    for (MeasuredLibrary peer : rank.peers()) {
      if (peer.supports(shape, placement)) {
        times.add(new PeerTime(peer.name(), timer.micros(peer, shape, placement)));
      }
    }
    return times.stream().min(Comparator.comparingDouble(PeerTime::micros));
  }

  /**
   * Counts wrong elements. There is no barrier between upload and call, so that a collective that
   * reads the data of a peer before that peer has called it gets wrong data.
   */
  private OptionalLong check(PerfCase shape, BufferAliasing placement) throws InterruptedException {
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
    if (contentsFor == null
        || contentsFor.type() != shape.type()
        || contentsFor.op() != shape.op()) {
      ReductionPattern pattern = new ReductionPattern(shape.type(), shape.op(), rank.nRanks());
      contents = new BufferContents(rank, pattern, shape.type());
      contentsFor = shape;
    }
    return contents;
  }
}
