package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.testing.FakeFamily;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class RankGroupJoiningTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final RankGroupOptions OPTIONS =
      new RankGroupOptions(LONG, DeviceChoice.HOST, CollectivesOptions.DEFAULT);

  @Test
  void shouldCloseTheGroupThatNobodyWaitsForAnyMore() {
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
        RankGroup.fromEnvironment(
            OPTIONS.withCollectives(CollectivesOptions.DEFAULT.withFamily(late)));
    assertThat(communicator).succeedsWithin(LONG);
    group.cancel(false);
    prepared.complete(late);
    assertThat(communicator.join().failed()).succeedsWithin(LONG).isInstanceOf(Aborted.class);
    assertThat(communicator.join().bootstrap().failure()).succeedsWithin(LONG);
    assertThat(group).isCancelled();
  }

  @Test
  void shouldFailTheFutureWhenTheEnvironmentMakesNoSense() {
    System.setProperty(DeviceChoice.PROPERTY, "abacus");
    try {
      assertThat(RankGroup.fromEnvironment(LONG))
          .failsWithin(LONG)
          .withThrowableThat()
          .withCauseInstanceOf(InvalidUsage.class)
          .withMessageContaining("abacus");
    } finally {
      System.clearProperty(DeviceChoice.PROPERTY);
    }
  }

  @Test
  void shouldTellTheOthersWhenADeviceCannotBeOpenedForWantOfMemory() {
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(2);
    try {
      OutOfMemoryError error = new OutOfMemoryError("on purpose");
      assertThat(
              catchThrowable(
                  () ->
                      new RankGroup(
                          bootstraps.get(0),
                          () -> {
                            throw error;
                          },
                          OPTIONS)))
          .isSameAs(error);
      assertThat(bootstraps.get(1).failure())
          .succeedsWithin(LONG)
          .satisfies(
              reason ->
                  assertThat(reason)
                      .hasMessageContaining("rank 0: ")
                      .hasMessageContaining("on purpose"));
      assertThat(bootstraps.get(0).failure()).succeedsWithin(LONG);
    } finally {
      bootstraps.forEach(LocalBootstrap::close);
    }
  }
}
