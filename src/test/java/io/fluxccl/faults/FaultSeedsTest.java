// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.Rank;
import io.fluxccl.testing.Parallel;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.Fault;
import io.fluxccl.testkit.FaultKind;
import io.fluxccl.testkit.FaultPlan;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.LocalRanksOptions;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** Jobs over networks with faults end with right results, or with an error in time. */
@Isolated
class FaultSeedsTest {
  private static final int RANKS = 3;
  private static final int STEPS = 12;
  private static final int MOST_BYTES = 24_000;

  /** Jobs wait much of their time, for links that are replaced or for their limit. */
  private static final int AT_ONCE = 4;

  /**
   * Maximum repetitions of a seed until its job fails alike, because thread timing also affects the
   * failure. A seed with two equally likely failures repeats the first one almost certainly.
   */
  private static final int TRIES = 25;

  private static final Duration LIMIT = Duration.ofSeconds(4);

  /** All operations have timed out by then, also on a busy machine. */
  private static final Duration END = Duration.ofSeconds(30);

  private static final CollectivesOptions OPTIONS =
      CollectivesOptions.DEFAULT.withTimeout(LIMIT).withSetupTimeout(Duration.ofSeconds(20));

  /** The outcome of a job. */
  private record Outcome(
      long seed, FaultPlan plan, List<Fault> happened, FluxCclException failure) {
    /**
     * Describes the failure. Leaves out the rank of a timeout, because it depends on thread timing.
     */
    String told() {
      return failure == null
          ? "right"
          : failure.code() + (failure instanceof Timeout ? "" : " of rank " + failure.rank());
    }
  }

  @Test
  @org.junit.jupiter.api.Timeout(300)
  void shouldEndRightOrWithATypedErrorInTime() throws Exception {
    run(20);
  }

  @Test
  @Tag("faults")
  @org.junit.jupiter.api.Timeout(900)
  void shouldEndRightOrWithATypedErrorInTimeForManySeeds() throws Exception {
    run(Integer.getInteger("fluxccl.fault.seeds", Rounds.of(50, 1_000)));
  }

  private static void run(int seeds) throws Exception {
    long first = Rounds.SEED;
    outcome(first); // loads classes and native libraries
    ResourceLeaks before = ResourceLeaks.snapshot();
    long began = System.nanoTime();
    List<Outcome> outcomes = outcomes(LongStream.range(first, first + seeds));
    List<Long> failed = new ArrayList<>();
    Map<FaultKind, Integer> happened = new EnumMap<>(FaultKind.class);
    for (Outcome outcome : outcomes) {
      outcome.happened().forEach(fault -> happened.merge(fault.kind(), 1, Integer::sum));
      if (outcome.failure() != null) {
        failed.add(outcome.seed());
      }
    }
    List<Long> different = failed;
    int tries = 0;
    for (; tries < TRIES && !different.isEmpty(); tries++) {
      List<Outcome> again = outcomes(different.stream().mapToLong(Long::longValue));
      for (Outcome each : again) {
        assertThat(each.plan()).isEqualTo(outcomes.get((int) (each.seed() - first)).plan());
      }
      different =
          again.stream()
              .filter(each -> !each.told().equals(outcomes.get((int) (each.seed() - first)).told()))
              .map(Outcome::seed)
              .toList();
    }
    assertThat(different).as("seeds whose failure does not come again").isEmpty();
    System.out.printf(
        "%d seeds from %d: %d right, %d failed and again alike after %d tries, in %d s; faults %s%n",
        seeds,
        first,
        seeds - failed.size(),
        failed.size(),
        tries,
        (System.nanoTime() - began) / 1_000_000_000,
        happened);
    before.assertNone(Duration.ofSeconds(30));
  }

  private static List<Outcome> outcomes(LongStream seeds) throws Exception {
    return Parallel.forEach(seeds, AT_ONCE, FaultSeedsTest::outcome);
  }

  private static Outcome outcome(long seed) {
    FaultPlan plan = FaultPlan.seeded(seed, RANKS);
    LocalRanksOptions options =
        LocalRanksOptions.DEFAULT
            // Faults that only checksums reveal don't happen without them.
            .withCollectives(OPTIONS.withChecksums(seed % 4 != 0))
            .withFaults(plan);
    try (LocalRanks ranks = LocalRanks.ofHosts(RANKS, 1, options)) {
      try {
        ranks.run(END, rank -> steps(rank, new Random(seed)));
        return new Outcome(seed, plan, ranks.faultsInjected(), null);
      } catch (FluxCclException e) {
        boolean late = e.getMessage().matches("(?s)rank \\d not done within.*");
        if (late || e instanceof InvalidUsage || ranks.faultsInjected().isEmpty()) {
          throw e; // it hung, or blames the caller, or fails for no reason
        }
        if (e instanceof RemoteFailure) {
          assertThat(ranks.faultsInjected())
              .anyMatch(each -> each.kind() == FaultKind.KILL && each.from() == e.rank());
        }
        return new Outcome(seed, plan, ranks.faultsInjected(), e);
      }
    }
  }

  /** Ranks draw the same from their random numbers. */
  private static void steps(Rank rank, Random random) {
    try (DeviceBuffer memory =
        rank.device().allocate(RandomCollectiveCase.memory(RANKS, MOST_BYTES))) {
      for (int step = 0; step < STEPS; step++) {
        RandomCollectiveCase.Run run =
            RandomCollectiveCase.draw(random, RANKS, MOST_BYTES).on(rank.rank(), memory);
        rank.collectives().run(run.call).block(END);
        run.verify();
      }
    }
  }
}
