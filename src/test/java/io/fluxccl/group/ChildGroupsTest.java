// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.Split;
import io.fluxccl.device.DeviceBuffer;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

@Timeout(180)
class ChildGroupsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private List<RankGroup> job = List.of();

  private List<RankGroup> local(int nRanks) {
    job =
        RankGroup.local(
            nRanks, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST).withName("chat"));
    return job;
  }

  @AfterEach
  void closeJob() {
    RankGroup.closeAll(job);
  }

  private static <T> List<T> onAll(
      List<RankGroup> ranks, Function<RankGroup, CompletableFuture<T>> operation) {
    List<CompletableFuture<T>> all = ranks.stream().map(operation).toList();
    assertThat(all).allSatisfy(each -> assertThat(each).succeedsWithin(LONG));
    return all.stream().map(CompletableFuture::join).toList();
  }

  private static List<RankGroup> pairs(List<RankGroup> ranks) {
    return onAll(ranks, each -> each.split("tensor", each.rank() / 2, 0)).stream()
        .map(Optional::orElseThrow)
        .toList();
  }

  /** Adds up the numbers of the job's ranks in each sub-group, at the same time. */
  private static List<Integer> sums(List<RankGroup> groups) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    List<Mono<Void>> runs = new ArrayList<>();
    for (int rank = 0; rank < groups.size(); rank++) {
      RankGroup group = groups.get(rank);
      DeviceBuffer x = group.device().allocate(Integer.BYTES);
      x.upload(0, bytes().putInt(0, rank));
      buffers.add(x);
      runs.add(group.collectives().allReduce(x, DataType.INT32, ReduceOp.SUM));
    }
    StepVerifier.create(Mono.when(runs)).expectComplete().verify(LONG);
    List<Integer> sums = new ArrayList<>();
    for (DeviceBuffer x : buffers) {
      ByteBuffer sum = bytes();
      x.download(0, sum);
      sums.add(sum.getInt(0));
    }
    buffers.forEach(DeviceBuffer::close);
    return sums;
  }

  private static ByteBuffer bytes() {
    return ByteBuffer.allocateDirect(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
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

  @Test
  void shouldFormAGridOfTwoByTwo() {
    List<Map<String, RankGroup>> grid =
        onAll(local(4), each -> each.grid(Grid.of("tensor", 2).by("pipeline", 2)));
    assertThat(grid.get(0).keySet()).containsExactly("tensor", "pipeline");
    assertThat(sums(named(grid, "tensor"))).containsExactly(1, 1, 5, 5);
    assertThat(sums(named(grid, "pipeline"))).containsExactly(2, 4, 2, 4);
  }

  @Test
  void shouldFormAGridOfThreeByTwo() {
    List<Map<String, RankGroup>> grid =
        onAll(local(6), each -> each.grid(Grid.of("tensor", 3).by("data", 2)));
    assertThat(sums(named(grid, "tensor"))).containsExactly(3, 3, 3, 12, 12, 12);
    assertThat(sums(named(grid, "data"))).containsExactly(3, 5, 7, 3, 5, 7);
    assertThat(named(grid, "data")).extracting(RankGroup::rank).containsExactly(0, 0, 0, 1, 1, 1);
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
    assertThatThrownBy(() -> one.grid(Grid.of("tensor", 2).by("data", 3)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("6 places")
        .hasMessageContaining("1 ranks");
    assertThatThrownBy(() -> Grid.of("tensor", 0)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> Grid.of("tensor", 1).by("tensor", 1)).isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldSplitASubGroupAgain() {
    List<RankGroup> halves =
        onAll(local(4), each -> each.split("half", each.rank() / 2, 0)).stream()
            .map(Optional::orElseThrow)
            .toList();
    List<RankGroup> alone =
        onAll(halves, each -> each.split("own", each.rank(), 0)).stream()
            .map(Optional::orElseThrow)
            .toList();
    assertThat(sums(alone)).containsExactly(0, 1, 2, 3);
    assertThat(alone.get(3).name()).isEqualTo("chat.half.own");
  }

  @Test
  void shouldFailTheJobAndAllItsGroupsWhenOneAborts() {
    List<RankGroup> pairs = pairs(local(4));
    pairs.get(3).communicator().abort(new Aborted(1, "on purpose"));
    for (int rank = 0; rank < 4; rank++) {
      CompletableFuture<FluxCclException> inJob = job.get(rank).communicator().failed();
      CompletableFuture<FluxCclException> inPair = pairs.get(rank).communicator().failed();
      assertThat(inJob).succeedsWithin(LONG);
      assertThat(inJob.join())
          .hasMessageContaining("sub-group chat.tensor of the job's ranks [2, 3]");
      assertThat(inJob.join().rank()).isEqualTo(3);
      assertThat(inPair).succeedsWithin(LONG);
      assertThat(inPair.join()).hasMessageContaining("on purpose").isInstanceOf(Aborted.class);
      assertThat(inPair.join().rank()).isEqualTo(rank < 2 ? FluxCclException.NO_RANK : 1);
    }
  }

  @Test
  void shouldCloseASubGroupAlone() {
    List<RankGroup> pairs = pairs(local(4));
    List<RankGroup> first = pairs.subList(0, 2);
    first.forEach(RankGroup::close);
    StepVerifier.create(first.get(0).collectives().barrier())
        .expectError(FluxCclException.class)
        .verify(LONG);
    assertThat(sums(job)).containsExactly(6, 6, 6, 6);
    StepVerifier.create(
            Mono.when(pairs.get(2).collectives().barrier(), pairs.get(3).collectives().barrier()))
        .expectComplete()
        .verify(LONG);
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
    List<RankGroup> ranks =
        RankGroup.local(
            3,
            JoinOptions.of(0, 1)
                .withDevice(DeviceChoice.HOST)
                .withJoinTimeout(Duration.ofSeconds(2)));
    List<CompletableFuture<Optional<RankGroup>>> waiting =
        IntStream.of(0, 2).mapToObj(rank -> ranks.get(rank).split("tensor", 0, 0)).toList();
    for (CompletableFuture<?> each : waiting) {
      assertThat(each)
          .failsWithin(LONG)
          .withThrowableThat()
          .havingCause()
          .isInstanceOf(io.fluxccl.Timeout.class)
          .withMessageContaining("split(tensor)")
          .withMessageContaining("rank 1");
    }
    RankGroup.closeAll(ranks);
  }
}
