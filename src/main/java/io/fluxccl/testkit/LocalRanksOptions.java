// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import io.fluxccl.collective.CollectivesOptions;
import java.util.Optional;

/**
 * How {@link LocalRanks} work. Immutable; {@code with…} methods return a changed copy.
 *
 * @param collectives of {@link LocalRank#collectives()}
 * @param faults of the network between the ranks
 */
@Experimental
public record LocalRanksOptions(CollectivesOptions collectives, Optional<FaultPlan> faults) {
  /** The defaults of collectives, and a network without faults. */
  public static final LocalRanksOptions DEFAULT =
      new LocalRanksOptions(CollectivesOptions.DEFAULT, Optional.empty());

  /** Returns these options with other collectives. */
  public LocalRanksOptions withCollectives(CollectivesOptions options) {
    return new LocalRanksOptions(options, faults);
  }

  /** Returns these options with faults. */
  public LocalRanksOptions withFaults(FaultPlan plan) {
    return new LocalRanksOptions(collectives, Optional.of(plan));
  }
}
