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
import io.fluxccl.collective.channel.Trial.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

/** What must not happen between hosts when ranks close, overwrite, or don't come. */
class ChannelFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static Collectives open(io.fluxccl.testkit.LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  @ParameterizedTest
  @ValueSource(strings = {"all-pairs", "ring", "hierarchical"})
  void shouldEndOnAllRanksWhenOneDoesNotCome(String algorithm) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Duration limit = rank.rank() == 0 ? Duration.ofSeconds(1) : LONG;
            Collectives collectives = open(rank, options.withTimeout(limit));
            if (rank.rank() != 3) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              StepVerifier.create(collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                  .expectError(Timeout.class)
                  .verify(LONG);
            }
            assertThat(rank.communicator().failed())
                .succeedsWithin(LONG)
                .isInstanceOf(Timeout.class);
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
            if (rank.rank() == 1) {
              rank.communicator().close();
              return;
            }
            DeviceBuffer x = rank.device().allocate(4 << 20);
            StepVerifier.create(collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                .expectErrorSatisfies(
                    e -> {
                      assertThat(e).isInstanceOf(FluxCclException.class);
                      assertThat(e).isNotInstanceOf(Timeout.class);
                      assertThat(e).hasMessageContaining("rank 1");
                    })
                .verify(Duration.ofSeconds(20));
          });
    }
  }

  @Test
  void shouldLetEveryRankCloseAsSoonAsItIsDone() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            for (int round = 0; round < 10; round++) {
              // An odd number of pieces each way, so that credits are on their way at the end.
              try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
                Trial trial = new Trial(collectives);
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
  void shouldLetTheInputBeOverwrittenWhenDone() {
    int count = 40_000;
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
              DeviceBuffer in = rank.device().allocate(count * 4L);
              DeviceBuffer out = rank.device().allocate(count * 4L * 3);
              for (int round = 1; round < 40; round++) {
                for (int i = 0; i < count; i++) {
                  HostMemory.putInt(in.address() + i * 4L, round * 10 + rank.rank());
                }
                StepVerifier.create(collectives.allGather(in, out, count, DataType.INT32))
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
                  Trial trial = new Trial(collectives);
                  for (Collective kind : Collective.values()) {
                    trial.run(Shape.of(kind, 30_011).rootedAt(2), 1);
                  }
                }
                assertThatThrownBy(
                        () ->
                            Collectives.create(
                                    rank.communicator(),
                                    CollectivesOptions.DEFAULT
                                        .withTag(100)
                                        .withAlgorithm(Collective.ALL_REDUCE, "hierarchical"))
                                .join())
                    .hasCauseInstanceOf(InvalidUsage.class);
              });
        }
      }
    }
  }

  @Test
  void shouldTakeTheHierarchyForMuchBetweenHostsOfSeveralRanks() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
              DeviceBuffer x = rank.device().allocate(4 << 20);
              CollectiveCall call =
                  CollectiveCall.allReduce(x, x, 1 << 20, DataType.FLOAT32, ReduceOp.SUM);
              assertThat(collectives.algorithmFor(call)).isEqualTo("hierarchical");
              // Rounded once instead.
              CollectiveCall small =
                  CollectiveCall.allReduce(x, x, 1 << 20, DataType.FLOAT8_E5M2, ReduceOp.SUM);
              assertThat(collectives.algorithmFor(small)).isEqualTo("all-pairs");
            }
          });
    }
  }
}
