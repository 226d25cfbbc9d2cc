// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.ALL_TO_ALL_V;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;
import static io.fluxccl.collective.Collective.SEND_RECEIVE;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.transport.Transport;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Every collective between hosts, compared with HostReduction. */
abstract class ChannelContract extends BetweenHosts {
  /** Numbers of hosts, of ranks of each, and of threads. */
  Stream<Arguments> jobs() {
    return Stream.of(Arguments.of(2, 2, 0), Arguments.of(2, 1, 0));
  }

  @ParameterizedTest
  @MethodSource("jobs")
  void shouldDoEveryCollectiveOfAnyCount(int hosts, int ranksPerHost, int threads) {
    int nRanks = hosts * ranksPerHost;
    CollectivesOptions options = CollectivesOptions.DEFAULT.withThreads(threads);
    verify(
        hosts(hosts, ranksPerHost),
        hosts == 1 ? options.withTransport(Transport.ETHERNET) : options,
        trial -> {
          for (int count : counts(nRanks)) {
            for (Collective kind : Collective.plain()) {
              Shape shape = Shape.of(kind, count).rootedAt(count % nRanks);
              trial.run(shape, count % 5);
              if (kind != ALL_TO_ALL_V && kind != SEND_RECEIVE) {
                trial.run(shape.made(true), 0);
              }
            }
          }
        });
  }

  /** Whether the operation is tested with the type. */
  boolean reduces(DataType type, ReduceOp op) {
    return true;
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void shouldReduceEveryTypeInEveryWay(DataType type) {
    verify(
        hosts(2, 2),
        CollectivesOptions.DEFAULT,
        trial -> {
          for (ReduceOp op : ReduceOp.values()) {
            for (int count : reduces(type, op) ? new int[] {5, 40_001} : new int[0]) {
              for (Collective kind : List.of(ALL_REDUCE, REDUCE, REDUCE_SCATTER)) {
                trial.run(Shape.of(kind, count).with(type, op), 1);
                trial.run(Shape.of(kind, count).with(type, op).made(true), 1);
              }
            }
          }
        });
  }

  /** Algorithms, numbers of hosts, of ranks of each, and of threads. */
  Stream<Arguments> allReduces() {
    return Stream.of(
        Arguments.of("ring", 2, 1, 0),
        Arguments.of("ring", 2, 2, 0),
        Arguments.of("all-pairs", 2, 2, 0),
        Arguments.of("hierarchical", 2, 2, 0),
        Arguments.of("hierarchical", 3, 2, 0));
  }

  @ParameterizedTest
  @MethodSource("allReduces")
  void shouldAllReduceByEveryAlgorithm(String algorithm, int hosts, int ranksPerHost, int threads) {
    verify(
        hosts(hosts, ranksPerHost),
        CollectivesOptions.DEFAULT.withThreads(threads).withAlgorithm(ALL_REDUCE, algorithm),
        trial -> {
          for (int count : counts(hosts * ranksPerHost)) {
            for (ReduceOp op : List.of(SUM, AVG, MAX)) {
              Shape shape = Shape.of(ALL_REDUCE, count).with(FLOAT32, op);
              trial.run(shape, count % 5);
              trial.run(shape.with(BFLOAT16, op).made(true), 0);
              trial.run(Shape.of(ALL_GATHER, count % 2000), 0);
            }
          }
        });
  }
}
