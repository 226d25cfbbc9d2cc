// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
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
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Every collective between hosts on the host device, compared with HostReduction. */
class ChannelCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  /** An element count that fills several slots of a pipe. */
  private static final int MANY = Rounds.of(100_003, 300_007);

  private static final int[] COUNTS =
      Rounds.LONG ? new int[] {0, 1, 3, 1023, 65_537, 4, MANY} : new int[] {0, 3, 1023, MANY};

  private static void onHosts(
      int hosts, int ranksPerHost, CollectivesOptions options, Consumer<CollectiveVerifier> body) {
    try (LocalRanks ranks = LocalRanks.ofHosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              body.accept(new CollectiveVerifier(collectives));
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "2,1,0", "3,1,0", "2,2,0", "3,2,0", "1,3,0", "2,2,1", "2,2,3", "2,1,2",
  })
  void shouldDoEveryCollectiveOfAnyCount(int hosts, int ranksPerHost, int threads) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withThreads(threads);
    onHosts(
        hosts,
        ranksPerHost,
        hosts == 1 ? options.withTransport(Transport.ETHERNET) : options,
        trial -> {
          for (int count : COUNTS) {
            for (Collective kind : Collective.plain()) {
              Shape shape = Shape.of(kind, count).rootedAt(count % (hosts * ranksPerHost));
              trial.run(shape, count % 5);
              if (kind != Collective.ALL_TO_ALL_V && kind != Collective.SEND_RECEIVE) {
                trial.run(shape.made(true), 0);
              }
            }
          }
        });
  }

  private static Stream<Arguments> reductions() {
    return Stream.of(DataType.values())
        // Every type and every operation, but not all pairs, which tests on one host cover.
        .flatMap(
            type ->
                Stream.of(ReduceOp.values())
                    .filter(
                        op ->
                            op.ordinal() == type.ordinal() % ReduceOp.values().length
                                || Rounds.LONG && op == ReduceOp.SUM)
                    .map(op -> Arguments.of(type, op)));
  }

  @ParameterizedTest
  @MethodSource("reductions")
  void shouldReduceEveryTypeInEveryWay(DataType type, ReduceOp op) {
    onHosts(
        2,
        2,
        CollectivesOptions.DEFAULT,
        trial -> {
          for (int count : new int[] {5, 40_001}) {
            for (Collective kind :
                new Collective[] {
                  Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER
                }) {
              trial.run(Shape.of(kind, count).with(type, op), 1);
              trial.run(Shape.of(kind, count).with(type, op).made(true), 1);
            }
          }
        });
  }

  @ParameterizedTest
  @CsvSource({
    "ring,2,1,1",
    "ring,3,1,1",
    "ring,2,2,3",
    "hierarchical,2,2,1",
    "hierarchical,2,2,2",
    "hierarchical,2,3,3",
    "hierarchical,3,2,1",
  })
  void shouldReduceByNeighboursAndByHosts(
      String algorithm, int hosts, int ranksPerHost, int threads) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withThreads(threads)
            .withAlgorithm(Collective.ALL_REDUCE, algorithm);
    onHosts(
        hosts,
        ranksPerHost,
        options,
        trial -> {
          for (int count : COUNTS) {
            for (ReduceOp op : new ReduceOp[] {ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX}) {
              Shape shape = Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, op);
              trial.run(shape, count % 5);
              trial.run(shape.with(DataType.BFLOAT16, op).made(true), 0);
              trial.run(Shape.of(Collective.ALL_GATHER, count % 2000), 0);
            }
          }
        });
  }

  /** Collectives that have a hierarchical algorithm. */
  private static final List<Collective> BY_HOSTS =
      List.of(
          Collective.ALL_REDUCE,
          Collective.ALL_GATHER,
          Collective.REDUCE_SCATTER,
          Collective.ALL_TO_ALL,
          Collective.BROADCAST,
          Collective.REDUCE);

  private static CollectivesOptions byHosts() {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    for (Collective kind : BY_HOSTS) {
      options = options.withAlgorithm(kind, "hierarchical");
    }
    return options;
  }

  @ParameterizedTest
  @CsvSource({
    "2,2,1", "2,2,2", "3,2,1", "2,3,3", "4,2,1",
  })
  void shouldDoCollectivesOfAnyCountByHosts(int hosts, int ranksPerHost, int threads) {
    onHosts(
        hosts,
        ranksPerHost,
        byHosts().withThreads(threads),
        trial -> {
          int round = 0;
          for (int count : COUNTS) {
            for (Collective kind : BY_HOSTS) {
              Shape shape = Shape.of(kind, count).rootedAt(round++ % (hosts * ranksPerHost));
              trial.run(shape, count % 5);
              trial.run(shape.made(true), 0);
            }
          }
        });
  }

  @Test
  void shouldRunCollectivesByHostsIfRanksOfHostsAreInterleaved() {
    for (List<Long> hosts : List.of(List.of(0L, 1L, 1L, 0L), List.of(0L, 1L, 2L, 2L, 1L, 0L))) {
      try (LocalRanks ranks = LocalRanks.onHosts(hosts)) {
        ranks.run(
            LONG,
            rank -> {
              try (Collectives collectives =
                  Collectives.create(rank.communicator(), byHosts()).join()) {
                CollectiveVerifier trial = new CollectiveVerifier(collectives);
                for (Collective kind : BY_HOSTS) {
                  for (int root = 0; root < hosts.size(); root++) {
                    trial.run(Shape.of(kind, 30_011).rootedAt(root), 1);
                  }
                }
              }
            });
      }
    }
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void shouldDoEveryTypeByHosts(DataType type) {
    onHosts(
        2,
        2,
        byHosts(),
        trial -> {
          for (Collective kind : BY_HOSTS) {
            Shape shape = Shape.of(kind, 40_001).with(type, ReduceOp.SUM).rootedAt(3);
            trial.run(shape, 1);
            trial.run(shape.with(type, ReduceOp.AVG).made(true), 0);
            trial.run(shape.with(type, ReduceOp.MAX), 3);
          }
        });
  }

  @ParameterizedTest
  @CsvSource({
    "2,2,1", "2,2,2", "3,2,1", "2,3,3",
  })
  void shouldAllReduceOnRegisteredBuffersByHosts(int hosts, int ranksPerHost, int threads) {
    try (LocalRanks ranks = LocalRanks.ofHosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), byHosts().withThreads(threads)).join()) {
              CollectiveVerifier trial = new CollectiveVerifier(collectives, true);
              for (int count : new int[] {1, 3, 1023, 65_537, MANY, 3 * MANY}) {
                Shape shape = Shape.of(Collective.ALL_REDUCE, count);
                trial.run(shape.with(DataType.FLOAT32, ReduceOp.AVG), count % 5);
                trial.run(shape.made(true), 0);
              }
            }
          });
    }
  }

  /** Ranks that call late and overwrite at once: peers access memory only during the call. */
  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST", "REDUCE"})
  void shouldAllowLateRanksAndOverwritingAfterCompletion(Collective kind) {
    int most = 120_000;
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                    Collectives.create(rank.communicator(), byHosts()).join();
                DeviceBuffer in = rank.device().allocate(most * 4L);
                DeviceBuffer out = rank.device().allocate(most * 4L)) {
              collectives.register(in).join();
              collectives.register(out).join();
              for (int round = 0; round < Rounds.of(8, 24); round++) {
                int n = round % 4 == 0 ? 100 : most;
                HostMemory.fill(in.address(), n * 4L, (byte) (rank.rank() + 1));
                HostMemory.fill(out.address(), n * 4L, (byte) 0x55);
                if (round % 4 == rank.rank()) {
                  Thread.sleep(round % 3);
                }
                CollectiveCall call =
                    switch (kind) {
                      case ALL_REDUCE ->
                          CollectiveCall.allReduce(in, out, n, DataType.INT32, ReduceOp.MAX);
                      case ALL_GATHER -> CollectiveCall.allGather(in, out, n / 4, DataType.INT32);
                      case REDUCE_SCATTER ->
                          CollectiveCall.reduceScatter(
                              in, out, n / 4, DataType.INT32, ReduceOp.MAX);
                      case ALL_TO_ALL -> CollectiveCall.allToAll(in, out, n / 4, DataType.INT32);
                      case BROADCAST ->
                          CollectiveCall.broadcast(in, out, n, DataType.INT32, round % 4);
                      default ->
                          CollectiveCall.reduce(
                              in, out, n, DataType.INT32, ReduceOp.MAX, round % 4);
                    };
                ParkingStepVerifier.create(collectives.run(call), LONG)
                    .expectComplete()
                    .verify(LONG);
                HostMemory.fill(in.address(), n * 4L, (byte) 0x77);
                boolean isRoot = rank.rank() == round % 4;
                for (int i = 0; i < n; i += 25) {
                  int from =
                      switch (kind) {
                        case ALL_GATHER, ALL_TO_ALL -> i / (n / 4) + 1;
                        case REDUCE_SCATTER -> i < n / 4 ? 4 : 0x55;
                        case BROADCAST -> round % 4 + 1;
                        case REDUCE -> isRoot ? 4 : 0x55;
                        default -> 4;
                      };
                  int actual = HostMemory.getInt(out.address() + i * 4L);
                  if (actual != from * 0x01010101) {
                    assertThat(actual).as("round %d, element %d", round, i).isEqualTo(from);
                  }
                }
              }
            }
          });
    }
  }
}
