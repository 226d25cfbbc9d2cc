// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The cases that a run of {@code perf} measures, and the way it measures them.
 *
 * @param cases the rows of the table, in order
 * @param placements placements of each case, where possible
 * @param iterations how many iterations are measured, or empty: at least 20 and at least 20 ms
 * @param warmUpIterations iterations before those
 * @param graph how many calls a graph has, or empty: each call is enqueued separately
 * @param checks how often the result is checked
 * @param jitWarmUp how long the collective runs before the first row
 * @param timeout of one collective
 * @param sizes the sizes in words, for the header
 */
record PerfPlan(
    List<PerfCase> cases,
    List<BufferAliasing> placements,
    Optional<Integer> iterations,
    int warmUpIterations,
    Optional<Integer> graph,
    int checks,
    Duration jitWarmUp,
    Duration timeout,
    String sizes) {

  /** Returns the size of the largest case. */
  long maxBytes(int nRanks) {
    return cases.stream().mapToLong(shape -> shape.bytes(nRanks)).max().orElse(0);
  }

  /** Returns the placements of a case; the only possible one where no other is wanted. */
  List<BufferAliasing> placements(PerfCase shape) {
    List<BufferAliasing> possible = possible(placements.stream(), shape);
    return possible.isEmpty() ? possible(Stream.of(BufferAliasing.values()), shape) : possible;
  }

  private static List<BufferAliasing> possible(Stream<BufferAliasing> of, PerfCase shape) {
    return of.filter(placement -> placement.isPossible(shape.collective())).toList();
  }
}
