// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.springboot;

import io.fluxccl.FluxCclException;
import io.fluxccl.group.RankGroup;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;

/** Down from the group's first failure on, which names the rank to blame. Never blocks. */
final class GroupHealth implements HealthIndicator {
  private final RankGroup group;

  GroupHealth(RankGroup group) {
    this.group = group;
  }

  @Override
  public Health health() {
    FluxCclException failure = group.communicator().failed().getNow(null);
    Health.Builder health = failure == null ? Health.up() : Health.down(failure);
    health.withDetail("rank", group.rank()).withDetail("ranks", group.nRanks());
    if (failure != null) {
      health.withDetail("code", failure.code()).withDetail("failedRank", failure.rank());
    }
    return health.build();
  }
}
