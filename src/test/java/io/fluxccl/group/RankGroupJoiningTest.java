// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class RankGroupJoiningTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final JoinOptions OPTIONS =
      JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST).withTimeout(LONG);

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
      assertThat(RankGroup.fromEnvironment())
          .failsWithin(LONG)
          .withThrowableThat()
          .withCauseInstanceOf(InvalidUsage.class)
          .withMessageContaining("abacus");
    } finally {
      System.clearProperty(DeviceChoice.PROPERTY);
    }
  }

  private static JoinOptions atPort(int rank, int port, JobSecret secret) {
    return JoinOptions.of(rank, 2)
        .withDevice(DeviceChoice.HOST)
        .withName("chat")
        .withAddress("127.0.0.1:" + port)
        .withSecret(secret);
  }

  @Test
  void shouldJoinAJobThatCodeDescribes() throws IOException {
    int port = Ports.free();
    JobSecret secret = JobSecret.random();
    CompletableFuture<RankGroup> first = RankGroup.join(atPort(0, port, secret));
    CompletableFuture<RankGroup> second = RankGroup.join(atPort(1, port, secret));
    assertThat(first).succeedsWithin(LONG);
    assertThat(second).succeedsWithin(LONG);
    try (RankGroup one = first.join();
        RankGroup other = second.join()) {
      assertThat(one.requireRanks(2)).isSameAs(one);
      assertThatThrownBy(() -> one.requireRanks(4))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("needs 4 ranks, the job has 2");
      assertThat(other.name()).isEqualTo("chat");
      other.communicator().abort(new Aborted(1, "enough"));
      assertThat(one.communicator().failed())
          .succeedsWithin(LONG)
          .satisfies(
              reason ->
                  assertThat(reason).hasMessageContaining("enough").hasMessageContaining("chat"));
      assertThatThrownBy(() -> other.collectives().barrier().block(LONG))
          .hasMessageContaining("chat");
    }
  }

  @Test
  void shouldNameTheJobIfARankDoesNotJoin() throws IOException {
    JoinOptions options =
        atPort(0, Ports.free(), JobSecret.random()).withJoinTimeout(Duration.ofSeconds(1));
    assertThat(RankGroup.join(options))
        .failsWithin(LONG)
        .withThrowableThat()
        .withMessageContaining("[1] did not register")
        .withMessageContaining("chat");
  }

  @Test
  void shouldRefuseAJobOfSeveralRanksWithoutAnAddress() {
    assertThat(RankGroup.join(JoinOptions.of(0, 2)))
        .failsWithin(LONG)
        .withThrowableThat()
        .withMessageContaining("no address for the root");
  }

  @Test
  void shouldNotifyPeersIfADeviceCannotBeOpened() {
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
                          true,
                          Generation.ONLY,
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
