// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.DeviceChoice.HOST;
import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.group.Groups.assertWorks;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.IntView;
import io.fluxccl.group.Groups.Place;
import io.fluxccl.testing.FakeFamily;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranks in one JVM that meet over TCP; {@link RankDeathTest} kills processes. */
@Timeout(120)
class ShrinkTest {
  private final List<RankGroup> all = new ArrayList<>();
  private final Place place = Place.free();

  @AfterEach
  void close() {
    all.forEach(RankGroup::closeAsync);
  }

  private List<RankGroup> start(int nRanks) {
    return start(nRanks, rank -> place.options(rank, nRanks));
  }

  private List<RankGroup> start(int nRanks, IntFunction<JoinOptions> options) {
    return open(
        IntStream.range(0, nRanks).mapToObj(options).map(each -> RankGroup.join(each)).toList());
  }

  private List<RankGroup> open(List<CompletableFuture<RankGroup>> opening) {
    List<RankGroup> groups = Groups.await(opening);
    all.addAll(groups);
    return groups;
  }

  private List<RankGroup> shrink(List<RankGroup> groups) {
    return open(groups.stream().map(RankGroup::shrink).toList());
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

  @Test
  void shouldShrinkRepeatedlyWithoutTheAttributedRank() {
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
      assertFails(first.get(1).shrink(), Aborted.class, "continue without");
      lose(second, 0);
      List<RankGroup> third = shrink(second.subList(1, 3));
      assertWorks(third);
      assertThat(third.get(0).generation().number()).isEqualTo(3);
      assertThat(kept.get(3)).isEqualTo(42);
      assertFails(first.get(2).shrink(), FluxCclException.class, "is closed");
      third.forEach(RankGroup::closeAsync);
    }
  }

  @Test
  void shouldCloseTheDeviceWithTheLastGroup() {
    List<RankGroup> first = start(2);
    lose(first, 1);
    RankGroup second = shrink(first.subList(0, 1)).get(0);
    first.get(0).close();
    assertWorks(List.of(second));
    second.close();
    assertRefused(() -> second.device().allocate(64));
  }

  @Test
  void shouldKeepAllRanksIfTheFailureIsAnAbort() {
    UniqueId id = TcpBootstrap.createUniqueId(BootstrapOptions.defaults());
    List<RankGroup> first =
        start(3, rank -> JoinOptions.of(rank, 3).withDevice(HOST).withUniqueId(id));
    first.get(1).communicator().abort(new Aborted(1, "on purpose"));
    awaitFailure(first);
    assertWorks(shrink(first));
  }

  /** A family whose second set-up, that of the smaller group, fails. */
  private static JoinOptions failingOnce(JoinOptions options) {
    AtomicInteger prepared = new AtomicInteger();
    FakeFamily family =
        new FakeFamily("fake") {
          @Override
          public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
            return prepared.incrementAndGet() == 2 && peers.rank() == 0
                ? CompletableFuture.failedFuture(new Aborted(0, "on purpose"))
                : super.prepare(peers);
          }
        };
    return options.withCollectives(options.collectives().withFamily(family));
  }

  @Test
  void shouldFormAnotherGroupIfTheSetUpOfTheSmallerOneFails() {
    List<RankGroup> first = start(4, rank -> failingOnce(place.options(rank, 4)));
    first.get(2).communicator().abort(new Aborted(2, "on purpose"));
    awaitFailure(first);
    List<RankGroup> next = shrink(first);
    assertWorks(next);
    assertThat(next.get(0).generation().number()).isEqualTo(3);
    assertThat(next.get(0).device()).isSameAs(first.get(0).device());
  }

  @Test
  void shouldNameTheRankThatDoesNotCall() {
    List<RankGroup> first =
        start(4, rank -> place.options(rank, 4).withJoinTimeout(Duration.ofSeconds(3)));
    lose(first, 0);
    CompletableFuture<RankGroup> one = first.get(1).shrink();
    CompletableFuture<RankGroup> two = first.get(2).shrink();
    assertFails(first.get(1).shrink(), FluxCclException.class, "called before");
    assertThat(assertFails(one, io.fluxccl.Timeout.class, "ranks [3]").rank()).isEqualTo(3);
    assertFails(two, io.fluxccl.Timeout.class);
    assertWorks(shrink(first.subList(1, 4)));
  }

  @Test
  void shouldRefuseARankThatShrinksAfterTheOthersContinued() {
    List<RankGroup> first = start(3);
    // Each of two ranks reports the other one dead.
    first.get(0).communicator().abort(new RemoteFailure(2, "cut off"));
    first.get(2).communicator().abort(new RemoteFailure(0, "cut off"));
    awaitFailure(first);
    int blamed = first.get(1).communicator().failure().rank();
    List<RankGroup> others = new ArrayList<>(first);
    RankGroup late = others.remove(blamed);
    assertWorks(shrink(others));
    assertFails(late.shrink(), Aborted.class);
  }

  @Test
  void shouldRefuseToShrinkUnfailedSplitClosedOrLocalGroups() {
    List<RankGroup> first = start(2);
    assertFails(first.get(0).shrink(), InvalidUsage.class, "has not failed");
    RankGroup half = Groups.split(first, "half", rank -> 0).get(0);
    lose(first, 1);
    assertFails(half.shrink(), FluxCclException.class, "a sub-group");
    first.get(0).close();
    assertFails(first.get(0).shrink(), FluxCclException.class, "closed");
    List<RankGroup> local = Groups.local(2);
    all.addAll(local);
    lose(local, 1);
    assertFails(local.get(0).shrink(), FluxCclException.class, "share a JVM");
  }

  @Test
  void shouldLeaveRanksOutOfAGroupThatWorks() {
    List<RankGroup> groups = Groups.local(4);
    all.addAll(groups);
    List<RankGroup> smaller =
        Groups.onAll(groups, each -> each.without(0, 2)).stream()
            .flatMap(Optional::stream)
            .toList();
    assertThat(smaller).hasSize(2);
    assertWorks(smaller);
    assertFails(groups.get(1).without(4), InvalidUsage.class);
  }
}
