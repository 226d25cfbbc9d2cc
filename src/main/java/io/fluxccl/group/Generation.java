// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import java.util.List;
import java.util.Optional;

/**
 * One generation of a job: a group, from its forming until its first failure. Immutable.
 *
 * @param number 1 for the first; every member has the same
 * @param previousRanks for each rank, the rank of the same process in generation {@code number -
 *     1}, or -1 for a process that was not in it. A generation that failed while it was set up
 *     counts, although no group was emitted for it
 * @param cause why the generation before ended, as this process learned it; empty in its first one
 */
public record Generation(
    long number, List<Integer> previousRanks, Optional<FluxCclException> cause) {
  /** The generation of a group that was joined once. */
  static final Generation ONLY = new Generation(1, List.of(), Optional.empty());

  /** Copies the list. */
  public Generation {
    previousRanks = List.copyOf(previousRanks);
  }
}
