// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.group.Groups.onAll;
import static io.fluxccl.group.Groups.pairs;
import static io.fluxccl.group.Groups.split;
import static io.fluxccl.group.Groups.sums;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Split;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(180)
class ChildGroupsTest {
  private List<RankGroup> job = List.of();

  private List<RankGroup> local(int nRanks) {
    job = RankGroup.local(nRanks, Groups.onHost().withName("chat"));
    return job;
  }

  @AfterEach
  void closeJob() {
    RankGroup.closeAll(job);
  }

  @Test
  void shouldReduceWithinEachColor() {
    List<RankGroup> pairs = pairs(local(4));
    assertThat(sums(pairs)).containsExactly(1, 1, 5, 5);
    assertThat(pairs.get(3).rank()).isEqualTo(1);
    assertThat(pairs.get(3).nRanks()).isEqualTo(2);
    assertThat(pairs.get(3).name()).isEqualTo("chat.tensor");
    assertThat(pairs.get(3).device()).isSameAs(job.get(3).device());
    assertThat(sums(job)).containsExactly(6, 6, 6, 6);
  }

  @Test
  void shouldRetainNoSubGroupThatIsClosed() {
    local(2);
    List<WeakReference<RankGroup>> closed = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      closed.addAll(closedPair());
    }
    await()
        .atMost(LONG)
        .untilAsserted(
            () -> {
              System.gc();
              assertThat(closed).extracting(WeakReference::get).containsOnlyNulls();
            });
    assertThat(sums(job)).containsExactly(1, 1);
  }

  /** A method of its own, so that no variable of the test refers to the groups. */
  private List<WeakReference<RankGroup>> closedPair() {
    List<RankGroup> pair = pairs(job);
    assertThat(sums(pair)).containsExactly(1, 1);
    RankGroup.closeAll(pair);
    return pair.stream().map(WeakReference::new).toList();
  }

  @Test
  void shouldLeaveOutNegativeColorsAndOrderByKey() {
    List<Optional<RankGroup>> groups =
        onAll(local(4), each -> each.split(each.rank() == 2 ? -1 : 0, -each.rank()));
    assertThat(groups.get(2)).isEmpty();
    assertThat(groups.get(3).orElseThrow().rank()).isZero();
    assertThat(groups.get(0).orElseThrow().rank()).isEqualTo(2);
    assertThat(groups.get(0).orElseThrow().name()).isEqualTo("chat.split-1");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "2 | [1, 1, 5, 5]         | [2, 4, 2, 4]       | [0, 0, 1, 1]",
        "3 | [3, 3, 3, 12, 12, 12]| [3, 5, 7, 3, 5, 7] | [0, 0, 0, 1, 1, 1]"
      })
  void shouldFormAGrid(int first, String sumsOfFirst, String sumsOfSecond, String ranksOfSecond) {
    List<Map<String, RankGroup>> grid =
        onAll(local(2 * first), each -> each.grid(Grid.of("tensor", first).by("data", 2)));
    assertThat(grid.get(0).keySet()).containsExactly("tensor", "data");
    assertThat(sums(named(grid, "tensor"))).hasToString(sumsOfFirst);
    assertThat(sums(named(grid, "data"))).hasToString(sumsOfSecond);
    assertThat(named(grid, "data").stream().map(RankGroup::rank).toList())
        .hasToString(ranksOfSecond);
  }

  private static List<RankGroup> named(List<Map<String, RankGroup>> grid, String name) {
    return grid.stream().map(groups -> groups.get(name)).toList();
  }

  @Test
  void shouldCountTheFirstDimensionFastest() {
    assertThat(Grid.of("a", 2).by("b", 3).by("c", 2).splits(9, 12))
        .containsExactly(new Split("a", 8, 1, 2), new Split("b", 7, 1, 3), new Split("c", 3, 1, 2));
  }

  @Test
  void shouldRefuseAGridOfAnotherSize() {
    RankGroup one = local(1).get(0);
    assertRefused(() -> one.grid(Grid.of("tensor", 2).by("data", 3)), "6 places", "1 ranks");
    assertRefused(() -> Grid.of("tensor", 0));
    assertRefused(() -> Grid.of("tensor", 1).by("tensor", 1));
  }

  @Test
  void shouldSplitASubGroupAgain() {
    List<RankGroup> halves = split(local(4), "half", rank -> rank / 2);
    List<RankGroup> alone = split(halves, "own", rank -> rank);
    assertThat(sums(alone)).containsExactly(0, 1, 2, 3);
    assertThat(alone.get(3).name()).isEqualTo("chat.half.own");
  }

  @Test
  void shouldFailTheJobAndAllItsGroupsWhenOneAborts() {
    List<RankGroup> pairs = pairs(local(4));
    pairs.get(3).communicator().abort(new Aborted(1, "on purpose"));
    for (int rank = 0; rank < 4; rank++) {
      FluxCclException inJob = failure(job.get(rank));
      assertThat(inJob).hasMessageContaining("sub-group chat.tensor of the job's ranks [2, 3]");
      assertThat(inJob.rank()).isEqualTo(3);
      FluxCclException inPair = failure(pairs.get(rank));
      assertThat(inPair).hasMessageContaining("on purpose").isInstanceOf(Aborted.class);
      assertThat(inPair.rank()).isEqualTo(rank < 2 ? FluxCclException.NO_RANK : 1);
    }
  }

  private static FluxCclException failure(RankGroup group) {
    return Groups.await(List.of(group.communicator().failed())).get(0);
  }

  @Test
  void shouldCloseASubGroupAlone() {
    List<RankGroup> pairs = pairs(local(4));
    List<RankGroup> first = pairs.subList(0, 2);
    first.forEach(RankGroup::close);
    failureOf(first.get(0).collectives().barrier().toFuture());
    assertThat(sums(job)).containsExactly(6, 6, 6, 6);
    assertThat(sums(pairs.subList(2, 4))).containsExactly(1, 1);
  }

  @Test
  void shouldCloseSubGroupsBeforeTheGroup() {
    List<RankGroup> pairs = pairs(local(2));
    CompletableFuture<Boolean> inOrder =
        job.get(0).closing.closed().thenApply(done -> pairs.get(0).communicator().isClosed());
    RankGroup.closeAll(job);
    assertThat(inOrder.join()).isTrue();
    assertThat(pairs.get(1).communicator().isClosed()).isTrue();
    assertThat(job.get(0).split(0, 0)).failsWithin(LONG);
  }

  /** If each close waited for all other ranks, the loop would take minutes. */
  @Test
  @Timeout(60)
  void shouldCloseAllLocalRanksInAPlainLoop() {
    List<RankGroup> ranks = local(32);
    for (RankGroup each : ranks.subList(0, 31)) {
      each.close();
      assertThat(each.closing.closed()).isNotDone();
    }
    ranks.get(31).close();
    assertThat(ranks).allSatisfy(each -> assertThat(each.closing.closed()).isCompleted());
    assertThat(ranks).allSatisfy(each -> assertThat(each.communicator().isClosed()).isTrue());
  }

  @Test
  void shouldCloseSubGroupsOfLocalRanksInAPlainLoop() {
    List<RankGroup> pairs = pairs(local(4));
    pairs.get(0).close();
    assertThat(pairs.get(0).closing.closed()).isNotDone();
    pairs.get(1).close();
    assertThat(pairs.get(0).closing.closed()).isCompleted();
    assertThat(pairs.get(2).closing.closed()).isNotDone();
  }

  @Test
  void shouldNameTheRankThatDoesNotSplitInTime() {
    job = RankGroup.local(3, Groups.onHost().withJoinTimeout(Duration.ofSeconds(2)));
    Stream.of(job.get(0), job.get(2))
        .map(each -> each.split("tensor", 0, 0))
        .toList()
        .forEach(each -> assertFails(each, io.fluxccl.Timeout.class, "split(tensor)", "rank 1"));
  }
}
