// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import java.util.Comparator;

/**
 * A ballot of the join protocol: one attempt of one coordinator to form an epoch. Terms are ordered
 * by their fields, and no two coordinators use the same term. See {@link Coordinator}.
 *
 * @param epoch the epoch to form, from 1
 * @param attempt the number of the attempt, from 1
 * @param rank the coordinator's rank in the epoch before
 */
record Term(
    @Limits long epoch,
    @Limits int attempt,
    @Limits(least = FluxCclException.NO_RANK, most = BootstrapFrameCodec.LAST_RANK) int rank)
    implements Comparable<Term> {
  static final Term NONE = new Term(0, 0, -1);

  private static final Comparator<Term> ORDER =
      Comparator.comparingLong(Term::epoch)
          .thenComparingInt(Term::attempt)
          .thenComparingInt(Term::rank);

  @Override
  public int compareTo(Term other) {
    return ORDER.compare(this, other);
  }

  boolean isAfter(Term other) {
    return compareTo(other) > 0;
  }

  /** Returns the next attempt at the same epoch, by a coordinator of the given rank. */
  Term next(int coordinator) {
    return new Term(epoch, attempt + 1, coordinator);
  }

  @Override
  public String toString() {
    return epoch + "." + attempt + "." + rank;
  }
}
