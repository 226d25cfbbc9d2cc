// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranks in one JVM that meet over TCP; {@link RankDeathTest} kills processes. */
@Timeout(120)
class ShrinkTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final List<RankGroup> all = new ArrayList<>();
  private final JobSecret secret = JobSecret.random();
  private int port;

  @BeforeEach
  void choosePort() throws IOException {
    port = Ports.free();
  }

  @AfterEach
  void close() {
    all.forEach(RankGroup::closeAsync);
  }

  private List<RankGroup> start(int nRanks) throws Exception {
    return start(nRanks, options -> options.withAddress("127.0.0.1:" + port).withSecret(secret));
  }

  private List<RankGroup> start(int nRanks, UnaryOperator<JoinOptions> change) throws Exception {
    List<CompletableFuture<RankGroup>> joining = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      JoinOptions options =
          JoinOptions.of(rank, nRanks).withDevice(DeviceChoice.HOST).withName("chat");
      joining.add(RankGroup.join(change.apply(options)));
    }
    return await(joining);
  }

  private List<RankGroup> await(List<CompletableFuture<RankGroup>> joining) throws Exception {
    List<RankGroup> groups = new ArrayList<>();
    for (CompletableFuture<RankGroup> each : joining) {
      groups.add(each.get(LONG.toSeconds(), TimeUnit.SECONDS));
    }
    all.addAll(groups);
    return groups;
  }

  private List<RankGroup> shrink(List<RankGroup> groups) throws Exception {
    return await(groups.stream().map(RankGroup::shrink).toList());
  }

  /** Fails all groups with a failure attributed to a rank, as if it had died. */
  private static void lose(List<RankGroup> groups, int rank) {
    int other = rank == 0 ? 1 : 0;
    groups.get(other).communicator().abort(new RemoteFailure(rank, "cut off"));
    awaitFailure(groups);
  }

  private static void awaitFailure(List<RankGroup> groups) {
    groups.forEach(each -> assertThat(each.communicator().failed()).succeedsWithin(LONG));
  }

  private static FluxCclException failure(CompletableFuture<?> of) throws Exception {
    try {
      of.get(LONG.toSeconds(), TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      return FluxCclException.from(e);
    }
    throw new AssertionError("no failure");
  }

  /** Sums 1 of every rank and expects the number of ranks. */
  private static void assertWorks(List<RankGroup> groups) {
    List<IntView> views = new ArrayList<>();
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    for (int rank = 0; rank < groups.size(); rank++) {
      RankGroup group = groups.get(rank);
      assertThat(group.rank()).isEqualTo(rank);
      assertThat(group.nRanks()).isEqualTo(groups.size());
      IntView view = group.device().allocateInts(16);
      view.put(15, 1);
      views.add(view);
      runs.add(
          group.collectives().allReduce(view.buffer(), DataType.INT32, ReduceOp.SUM).toFuture());
    }
    assertThat(CompletableFuture.allOf(runs.toArray(new CompletableFuture<?>[0])))
        .succeedsWithin(LONG);
    for (IntView view : views) {
      assertThat(view.get(15)).isEqualTo(groups.size());
      view.close();
    }
  }

  @Test
  void shouldShrinkRepeatedlyWithoutTheAttributedRank() throws Exception {
    List<RankGroup> first = start(4);
    try (IntView kept = first.get(2).device().allocateInts(4)) {
      kept.put(3, 42);
      lose(first, 1);
      List<RankGroup> second = shrink(List.of(first.get(0), first.get(2), first.get(3)));
      assertWorks(second);
      assertThat(second.get(1).device()).isSameAs(first.get(2).device());
      assertThat(kept.get(3)).isEqualTo(42);
      Generation generation = second.get(1).generation();
      assertThat(generation.number()).isEqualTo(2);
      assertThat(generation.previousRanks()).containsExactly(0, 2, 3);
      assertThat(generation.cause().map(FluxCclException::getMessage).orElse(""))
          .contains("cut off");
      assertThat(failure(first.get(1).shrink()))
          .isInstanceOf(Aborted.class)
          .hasMessageContaining("continue without");
      lose(second, 0);
      List<RankGroup> third = shrink(second.subList(1, 3));
      assertWorks(third);
      assertThat(third.get(0).generation().number()).isEqualTo(3);
      assertThat(kept.get(3)).isEqualTo(42);
      assertThat(failure(first.get(2).shrink())).hasMessageContaining("is closed");
      third.forEach(RankGroup::closeAsync);
    }
  }

  @Test
  void shouldCloseTheDeviceWithTheLastGroup() throws Exception {
    List<RankGroup> first = start(2);
    lose(first, 1);
    RankGroup second = shrink(first.subList(0, 1)).get(0);
    first.get(0).close();
    assertWorks(List.of(second));
    second.close();
    assertThat(failure(CompletableFuture.runAsync(() -> second.device().allocate(64))))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldKeepAllRanksIfTheFailureIsAnAbort() throws Exception {
    UniqueId id = TcpBootstrap.createUniqueId(BootstrapOptions.defaults());
    List<RankGroup> first = start(3, options -> options.withUniqueId(id));
    first.get(1).communicator().abort(new Aborted(1, "on purpose"));
    awaitFailure(first);
    assertWorks(shrink(first));
  }

  @Test
  void shouldNameTheRankThatDoesNotCall() throws Exception {
    List<RankGroup> first =
        start(
            4,
            options ->
                options
                    .withAddress("127.0.0.1:" + port)
                    .withSecret(secret)
                    .withJoinTimeout(Duration.ofSeconds(3)));
    lose(first, 0);
    CompletableFuture<RankGroup> one = first.get(1).shrink();
    CompletableFuture<RankGroup> two = first.get(2).shrink();
    assertThat(failure(first.get(1).shrink())).hasMessageContaining("called before");
    assertThat(failure(one))
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("ranks [3]")
        .extracting(FluxCclException::rank)
        .isEqualTo(3);
    assertThat(failure(two)).isInstanceOf(io.fluxccl.Timeout.class);
    assertWorks(shrink(first.subList(1, 4)));
  }

  @Test
  void shouldRefuseARankThatShrinksAfterTheOthersContinued() throws Exception {
    List<RankGroup> first = start(3);
    // Each of two ranks reports the other one dead.
    first.get(0).communicator().abort(new RemoteFailure(2, "cut off"));
    first.get(2).communicator().abort(new RemoteFailure(0, "cut off"));
    awaitFailure(first);
    int blamed = first.get(1).communicator().failure().rank();
    List<RankGroup> others = new ArrayList<>(first);
    RankGroup late = others.remove(blamed);
    assertWorks(shrink(others));
    assertThat(failure(late.shrink())).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldRefuseToShrinkUnfailedSplitClosedOrLocalGroups() throws Exception {
    List<RankGroup> first = start(2);
    assertThat(failure(first.get(0).shrink()))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("has not failed");
    CompletableFuture<Optional<RankGroup>> other = first.get(1).split(0, 1);
    RankGroup half = first.get(0).split(0, 0).join().orElseThrow();
    other.join();
    lose(first, 1);
    assertThat(failure(half.shrink())).hasMessageContaining("a sub-group");
    first.get(0).close();
    assertThat(failure(first.get(0).shrink())).hasMessageContaining("closed");
    List<RankGroup> local = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    all.addAll(local);
    lose(local, 1);
    assertThat(failure(local.get(0).shrink())).hasMessageContaining("share a JVM");
  }

  @Test
  void shouldLeaveRanksOutOfAGroupThatWorks() throws Exception {
    List<RankGroup> groups = RankGroup.local(4, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    all.addAll(groups);
    List<CompletableFuture<Optional<RankGroup>>> forming =
        groups.stream().map(each -> each.without(0, 2)).toList();
    List<RankGroup> smaller = new ArrayList<>();
    for (CompletableFuture<Optional<RankGroup>> each : forming) {
      each.get(LONG.toSeconds(), TimeUnit.SECONDS).ifPresent(smaller::add);
    }
    assertThat(smaller).hasSize(2);
    assertWorks(smaller);
    assertThat(failure(groups.get(1).without(4))).isInstanceOf(InvalidUsage.class);
  }
}
