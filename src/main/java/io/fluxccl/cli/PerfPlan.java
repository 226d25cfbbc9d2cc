package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;

/**
 * What a run of {@code perf} measures, and how.
 *
 * @param cases the rows of the table, in order
 * @param iterations how many iterations are measured, or empty: at least 20 and at least 20 ms
 * @param warmUpIterations iterations before those
 * @param checks how often the result is checked
 * @param jitWarmUp how long the collective runs before the first row
 * @param timeout of one collective
 * @param sizes the sizes in words, for the header
 */
record PerfPlan(
    List<Case> cases,
    OptionalInt iterations,
    int warmUpIterations,
    int checks,
    Duration jitWarmUp,
    Duration timeout,
    String sizes) {

  /**
   * One row.
   *
   * @param count elements
   * @param type of the elements
   * @param op how they are reduced
   */
  record Case(long count, DataType type, ReduceOp op) {
    long bytes() {
      return count * type.size();
    }
  }

  /** The bytes of the largest case. */
  long maxBytes() {
    return cases.stream().mapToLong(Case::bytes).max().orElse(0);
  }
}
