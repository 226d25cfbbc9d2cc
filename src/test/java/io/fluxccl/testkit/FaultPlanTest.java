// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.IntView;
import java.time.Duration;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Set;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(120)
class FaultPlanTest {
  private static final int COUNT = 5_000;
  private static final int STEPS = 8;
  private static final CollectivesOptions CHECKED =
      CollectivesOptions.DEFAULT.withChecksums(true).withTimeout(Duration.ofSeconds(30));

  @Test
  void shouldDrawEqualPlansFromEqualSeeds() {
    assertThat(FaultPlan.seeded(42, 3)).isEqualTo(FaultPlan.seeded(42, 3));
    assertThat(FaultPlan.seeded(42, 3)).isNotEqualTo(FaultPlan.seeded(43, 3));
    assertThat(FaultPlan.seeded(42, 3).toString()).startsWith("seed 42 (");
  }

  @Test
  void shouldDrawEveryKindOfFault() {
    Set<FaultKind> drawn = EnumSet.noneOf(FaultKind.class);
    LongStream.range(0, 100)
        .mapToObj(seed -> FaultPlan.seeded(seed, 3))
        .forEach(plan -> plan.faults().forEach(fault -> drawn.add(fault.kind())));
    assertThat(drawn).containsExactlyInAnyOrder(FaultKind.values());
  }

  @Test
  void shouldRefuseAFaultBetweenARankAndItself() {
    assertRefused(() -> Fault.atMessage(FaultKind.CUT, 1, 1, 0));
  }

  private static void sum(LocalRank rank) {
    try (IntView x = rank.device().allocateInts(COUNT)) {
      for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
          x.put(i, i + step + rank.rank());
        }
        rank.collectives().allReduce(x, ReduceOp.SUM).block(Duration.ofSeconds(60));
        for (int i = 0; i < COUNT; i++) {
          assertThat(x.get(i)).isEqualTo(2 * (i + step) + 1);
        }
      }
    }
  }

  private static LocalRanks ranks(FaultPlan plan) {
    return LocalRanks.ofHosts(
        2, 1, LocalRanksOptions.DEFAULT.withCollectives(CHECKED).withFaults(plan));
  }

  /** The link is replaced, and what was lost is sent again. */
  @ParameterizedTest
  @EnumSource(
      value = FaultKind.class,
      names = {"SILENCE", "KILL"},
      mode = EnumSource.Mode.EXCLUDE)
  void shouldGiveRightResultsInSpiteOf(FaultKind kind) {
    shouldGiveRightResultsInSpiteOf(
        Fault.atMessage(kind, 0, 1, 3),
        new Fault(kind, 1, 0, 0, Fault.Unit.BYTES, 30_000, 12_345),
        Fault.atMessage(kind, 1, 0, 20));
  }

  /** It takes seconds to tell a silent link from a peer that has nothing to say. */
  @Test
  void shouldGiveRightResultsInSpiteOfSilence() {
    shouldGiveRightResultsInSpiteOf(Fault.atMessage(FaultKind.SILENCE, 0, 1, 3));
  }

  private static void shouldGiveRightResultsInSpiteOf(Fault... faults) {
    try (LocalRanks ranks = ranks(FaultPlan.of(faults))) {
      ranks.run(FaultPlanTest::sum);
      assertThat(ranks.faultsInjected()).containsExactlyInAnyOrder(faults);
    }
  }

  @Test
  void shouldNameTheRankThatIsKilledAndThePlanThatKilledIt() {
    FaultPlan plan = FaultPlan.of(Fault.atByte(FaultKind.KILL, 1, 0, 30_000));
    try (LocalRanks ranks = ranks(plan)) {
      RemoteFailure killed = assertThrows(RemoteFailure.class, () -> ranks.run(FaultPlanTest::sum));
      assertThat(killed.rank()).isEqualTo(1);
      assertThat(Arrays.toString(killed.getSuppressed()))
          .contains(plan.toString(), "of these happened [KILL rank 1 to 0");
    }
  }

  @Test
  void shouldNotCorruptMessagesWithoutChecksums() {
    Fault fault = Fault.atMessage(FaultKind.CORRUPT, 0, 1, 3);
    LocalRanksOptions options = LocalRanksOptions.DEFAULT.withFaults(FaultPlan.of(fault));
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1, options)) {
      ranks.run(FaultPlanTest::sum);
      assertThat(ranks.faultsInjected()).isEmpty();
    }
  }
}
