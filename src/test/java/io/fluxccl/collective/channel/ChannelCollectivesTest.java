package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.Trial.Shape;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Every collective between hosts, on the host device, against what HostReduction makes of it. */
class ChannelCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static void onHosts(
      int hosts, int ranksPerHost, CollectivesOptions options, Consumer<Trial> body) {
    try (LocalRanks ranks = LocalRanks.ofHosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              body.accept(new Trial(collectives));
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
          for (int count : new int[] {0, 1, 3, 1023, 65_537, 4, 150_001}) {
            for (Collective kind : Collective.values()) {
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
        // Every type and every operation, not each with each: kernels on one host are tested with
        // all.
        .flatMap(
            type ->
                Stream.of(ReduceOp.values())
                    .filter(op -> op == ReduceOp.SUM || (op.ordinal() + type.ordinal()) % 4 == 0)
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
          for (int count : new int[] {5, 70_001}) {
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
          for (int count : new int[] {1, 3, 1023, 65_537, 300_007}) {
            for (ReduceOp op : new ReduceOp[] {ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX}) {
              Shape shape = Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, op);
              trial.run(shape, count % 5);
              trial.run(shape.with(DataType.BFLOAT16, op).made(true), 0);
              trial.run(Shape.of(Collective.ALL_GATHER, count % 2000), 0);
            }
          }
        });
  }
}
