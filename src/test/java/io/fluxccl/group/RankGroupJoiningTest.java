// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.group.Groups.Place;
import io.fluxccl.testing.FakeFamily;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

@org.junit.jupiter.api.Timeout(180)
class RankGroupJoiningTest {
  private static final JoinOptions OPTIONS = Groups.onHost().withTimeout(LONG);

  @Test
  void shouldCloseTheGroupIfJoiningIsCancelled() {
    CompletableFuture<Communicator> communicator = new CompletableFuture<>();
    CompletableFuture<AlgorithmSet> prepared = new CompletableFuture<>();
    FakeFamily late =
        new FakeFamily("fake") {
          @Override
          public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
            communicator.complete(peers.communicator());
            return prepared;
          }
        };
    CompletableFuture<RankGroup> group =
        RankGroup.join(OPTIONS.withCollectives(CollectivesOptions.DEFAULT.withFamily(late)));
    assertThat(communicator).succeedsWithin(LONG);
    group.cancel(false);
    prepared.complete(late);
    assertThat(communicator.join().failed()).succeedsWithin(LONG).isInstanceOf(Aborted.class);
    assertThat(communicator.join().bootstrap().failure()).succeedsWithin(LONG);
    assertThat(group).isCancelled();
  }

  @Test
  void shouldFailTheFutureIfTheEnvironmentIsInvalid() {
    System.setProperty(DeviceChoice.PROPERTY, "abacus");
    try {
      assertFails(RankGroup.fromEnvironment(), InvalidUsage.class, "abacus");
    } finally {
      System.clearProperty(DeviceChoice.PROPERTY);
    }
  }

  @Test
  void shouldJoinAJobThatCodeDescribes() {
    Place place = Place.free();
    List<RankGroup> both =
        Groups.await(
            List.of(RankGroup.join(place.options(0, 2)), RankGroup.join(place.options(1, 2))));
    try (RankGroup one = both.get(0);
        RankGroup other = both.get(1)) {
      assertThat(one.requireRanks(2)).isSameAs(one);
      assertRefused(() -> one.requireRanks(4), "needs 4 ranks, the job has 2");
      assertThat(other.name()).isEqualTo("chat");
      other.communicator().abort(new Aborted(1, "enough"));
      assertThat(one.communicator().failed()).succeedsWithin(LONG);
      assertThat(one.communicator().failure()).hasMessageContainingAll("enough", "chat");
      CompletableFuture<Void> barrier = other.collectives().barrier().toFuture();
      assertFails(barrier, FluxCclException.class, "chat");
    }
  }

  @Test
  void shouldNameTheJobIfARankDoesNotJoin() {
    JoinOptions options = Place.free().options(0, 2).withJoinTimeout(Duration.ofSeconds(5));
    assertFails(RankGroup.join(options), Timeout.class, "ranks [1] did not join", "chat");
  }

  @Test
  void shouldRefuseAJobOfSeveralRanksWithoutAnAddress() {
    CompletableFuture<RankGroup> joining = RankGroup.join(JoinOptions.of(0, 2));
    assertFails(joining, InvalidUsage.class, "no address for the root");
  }

  @Test
  void shouldNotifyPeersIfADeviceCannotBeOpened() {
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(2);
    try {
      OutOfMemoryError error = new OutOfMemoryError("on purpose");
      Supplier<Device> broken =
          () -> {
            throw error;
          };
      assertThatThrownBy(
              () -> new RankGroup(bootstraps.get(0), broken, true, Generation.ONLY, OPTIONS))
          .isSameAs(error);
      assertThat(Groups.await(List.of(bootstraps.get(1).failure())).get(0))
          .hasMessageContainingAll("rank 0: ", "on purpose");
      assertThat(bootstraps.get(0).failure()).succeedsWithin(LONG);
    } finally {
      bootstraps.forEach(LocalBootstrap::close);
    }
  }
}
