// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

/** Collectives between hosts when ranks close, overwrite buffers, or do not call. */
class ChannelFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(180);

  private static Collectives open(io.fluxccl.testkit.LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  @ParameterizedTest
  @ValueSource(strings = {"all-pairs", "ring", "hierarchical"})
  void shouldTimeOutOnAllRanksIfOneDoesNotCall(String algorithm) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Duration limit = rank.rank() == 0 ? Duration.ofMillis(300) : LONG;
            Collectives collectives = open(rank, options.withTimeout(limit).withSetupTimeout(LONG));
            rank.awaitAll();
            if (rank.rank() != 3) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              ParkingStepVerifier.create(
                      collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM), LONG)
                  .expectError(Timeout.class)
                  .verify(LONG);
            }
            assertThat(rank.communicator().failed())
                .succeedsWithin(LONG)
                .isInstanceOf(Timeout.class);
          });
    }
  }

  private static CollectiveCall call(Collective kind, DeviceBuffer x, DeviceBuffer y, int count) {
    return switch (kind) {
      case ALL_REDUCE -> CollectiveCall.allReduce(x, y, count, DataType.INT32, ReduceOp.SUM);
      case ALL_GATHER -> CollectiveCall.allGather(x, y, count / 4, DataType.INT32);
      case REDUCE_SCATTER ->
          CollectiveCall.reduceScatter(x, y, count / 4, DataType.INT32, ReduceOp.SUM);
      case ALL_TO_ALL -> CollectiveCall.allToAll(x, y, count / 4, DataType.INT32);
      case BROADCAST -> CollectiveCall.broadcast(x, y, count, DataType.INT32, 2);
      default -> CollectiveCall.reduce(x, y, count, DataType.INT32, ReduceOp.SUM, 2);
    };
  }

  private static CollectivesOptions byHosts(Collective kind) {
    return CollectivesOptions.DEFAULT.withAlgorithm(kind, "hierarchical");
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST", "REDUCE"})
  void shouldTimeOutByHostsIfARankDoesNotCall(Collective kind) {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives =
                open(
                    rank,
                    byHosts(kind)
                        .withTimeout(Duration.ofMillis(300L * (rank.rank() + 1)))
                        .withSetupTimeout(LONG));
            DeviceBuffer x = rank.device().allocate(16 << 20);
            DeviceBuffer y = rank.device().allocate(16 << 20);
            rank.awaitAll();
            if (rank.rank() == 3) {
              assertThat(rank.communicator().failed()).succeedsWithin(LONG);
            } else {
              // At least one rank waits for rank 3; ranks that need no data of it may complete.
              collectives.run(call(kind, x, y, 4 << 20)).onErrorComplete().block(LONG);
              assertThat(rank.communicator().failed()).succeedsWithin(LONG);
            }
            FluxCclException failure = rank.communicator().failure();
            assertThat(failure).isInstanceOf(Timeout.class);
            assertThat(failure).hasMessageContaining(kind.label());
          });
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST", "REDUCE"})
  void shouldEndByHostsWhenARankLeavesInTheMiddle(Collective kind) {
    CountDownLatch done = new CountDownLatch(4);
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, byHosts(kind).withTimeout(Duration.ofSeconds(20)));
            DeviceBuffer x = rank.device().allocate(4 << 20);
            DeviceBuffer y = rank.device().allocate(4 << 20);
            CollectiveCall call = call(kind, x, y, 1 << 20);
            for (int i = 0; i < 3; i++) {
              ParkingStepVerifier.create(collectives.run(call), LONG).expectComplete().verify(LONG);
            }
            done.countDown();
            assertThat(done.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            if (rank.rank() == 1) {
              rank.communicator().close();
              return;
            }
            StepVerifier.create(collectives.run(call).repeat())
                .expectError(FluxCclException.class)
                .verify(LONG);
            assertThat(rank.communicator().failed()).succeedsWithin(LONG);
          });
    }
  }

  @Test
  void shouldRefuseByHostsIfRanksDisagree() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                open(rank, byHosts(Collective.ALL_GATHER).withChecks(true))) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              DeviceBuffer y = rank.device().allocate(4 << 20);
              int count = rank.rank() == 2 ? 1 << 19 : 1 << 20;
              ParkingStepVerifier.create(
                      collectives.run(call(Collective.ALL_GATHER, x, y, count)), LONG)
                  .expectError(InvalidUsage.class)
                  .verify(LONG);
              ParkingStepVerifier.create(
                      collectives.run(call(Collective.ALL_GATHER, x, y, 1 << 18)), LONG)
                  .expectComplete()
                  .verify(LONG);
            }
          });
    }
  }

  @Test
  void shouldEndWhenAPeerLeavesWhileOthersWaitForIt() {
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, CollectivesOptions.DEFAULT);
            rank.awaitAll();
            if (rank.rank() == 1) {
              rank.communicator().close();
              return;
            }
            DeviceBuffer x = rank.device().allocate(4 << 20);
            ParkingStepVerifier.create(
                    collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM), LONG)
                .expectErrorSatisfies(
                    e -> {
                      assertThat(e).isInstanceOf(FluxCclException.class);
                      assertThat(e).isNotInstanceOf(Timeout.class);
                      assertThat(e).hasMessageContaining("rank 1");
                    })
                .verify(LONG);
          });
    }
  }

  @Test
  void shouldAllowEveryRankToCloseAsSoonAsItIsDone() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            for (int round = 0; round < Rounds.of(4, 10); round++) {
              // An odd number of messages in each direction leaves credits in flight at the end.
              try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
                CollectiveVerifier trial = new CollectiveVerifier(collectives);
                for (int i = 0; i <= round; i++) {
                  trial.run(Shape.of(Collective.ALL_REDUCE, 1000 * round + 7), 0);
                }
              }
            }
            assertThat(rank.communicator().failure()).isNull();
          });
    }
  }

  @Test
  void shouldAllowOverwritingTheInputAfterCompletion() {
    int count = 40_000;
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
              DeviceBuffer in = rank.device().allocate(count * 4L);
              DeviceBuffer out = rank.device().allocate(count * 4L * 3);
              for (int round = 1; round < Rounds.of(10, 40); round++) {
                for (int i = 0; i < count; i++) {
                  HostMemory.putInt(in.address() + i * 4L, round * 10 + rank.rank());
                }
                ParkingStepVerifier.create(
                        collectives.allGather(in, out, count, DataType.INT32), LONG)
                    .expectComplete()
                    .verify(LONG);
                HostMemory.fill(in.address(), count * 4L, (byte) 0x77);
                for (int i = 0; i < 3 * count; i++) {
                  int value = HostMemory.getInt(out.address() + i * 4L);
                  if (value != round * 10 + i / count) {
                    assertThat(value).as("element %d", i).isEqualTo(round * 10 + i / count);
                  }
                }
              }
            }
          });
    }
  }

  @Test
  void shouldServeHostsOfUnevenlyManyRanks() {
    for (List<Long> hosts : List.of(List.of(0L, 0L, 1L), List.of(0L, 1L, 1L, 0L, 1L))) {
      for (String algorithm : List.of("all-pairs", "ring")) {
        CollectivesOptions options =
            CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
        try (LocalRanks ranks = LocalRanks.onHosts(hosts)) {
          ranks.run(
              LONG,
              rank -> {
                try (Collectives collectives = open(rank, options)) {
                  CollectiveVerifier trial = new CollectiveVerifier(collectives);
                  for (Collective kind : Collective.plain()) {
                    trial.run(Shape.of(kind, 30_011).rootedAt(2), 1);
                  }
                }
                int tag = 100;
                for (Collective kind : List.of(Collective.ALL_REDUCE, Collective.BROADCAST)) {
                  CollectivesOptions refused = byHosts(kind).withTag(tag++);
                  assertThatThrownBy(() -> Collectives.create(rank.communicator(), refused).join())
                      .hasCauseInstanceOf(InvalidUsage.class);
                }
              });
        }
      }
    }
  }

  @Test
  void shouldUseTheHierarchyForLargeCallsBetweenHostsOfSeveralRanks() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              CollectiveCall call =
                  CollectiveCall.allReduce(x, x, 1 << 20, DataType.FLOAT32, ReduceOp.SUM);
              assertThat(collectives.algorithmFor(call)).isEqualTo("hierarchical");
              // All-pairs rounds small floats only once.
              CollectiveCall small =
                  CollectiveCall.allReduce(x, x, 1 << 20, DataType.FLOAT8_E5M2, ReduceOp.SUM);
              assertThat(collectives.algorithmFor(small)).isEqualTo("all-pairs");
            }
          });
    }
  }

  @Test
  void shouldUseTheHierarchyIfItSendsLess() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              DeviceBuffer y = rank.device().allocate(4 << 20);
              for (Collective kind :
                  List.of(
                      Collective.ALL_GATHER,
                      Collective.REDUCE_SCATTER,
                      Collective.BROADCAST,
                      Collective.REDUCE)) {
                assertThat(collectives.algorithmFor(call(kind, x, y, 1 << 20)))
                    .as(kind.label())
                    .isEqualTo("hierarchical");
              }
              // The hierarchy sends as many bytes between hosts, and more inside hosts.
              assertThat(collectives.algorithmFor(call(Collective.ALL_TO_ALL, x, y, 1 << 20)))
                  .isEqualTo("all-pairs");
              collectives.prefer(Collective.ALL_TO_ALL, Optional.of("hierarchical"));
              assertThat(collectives.algorithmFor(call(Collective.ALL_TO_ALL, x, y, 1 << 20)))
                  .isEqualTo("hierarchical");
              assertThat(
                      collectives.algorithmsFor(
                          CollectiveCall.gather(x, y, 1000, DataType.INT32, 0)))
                  .containsExactly("all-pairs");
            }
          });
    }
  }
}
