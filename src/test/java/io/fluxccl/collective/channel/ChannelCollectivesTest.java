// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.BARRIER;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.ValueSource;

/** The contract on the host device. */
class ChannelCollectivesTest extends ChannelContract {
  private static final List<Collective> ALONG_A_TREE =
      List.of(ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, BARRIER);

  @Override
  boolean onGpus() {
    return false;
  }

  @Override
  Stream<Arguments> jobs() {
    return Stream.of(
        Arguments.of(2, 1, 0),
        Arguments.of(3, 1, 0),
        Arguments.of(2, 2, 0),
        Arguments.of(3, 2, 0),
        Arguments.of(1, 3, 0),
        Arguments.of(2, 2, 1),
        Arguments.of(2, 2, 3),
        Arguments.of(2, 1, 2));
  }

  @Override
  boolean reduces(DataType type, ReduceOp op) {
    // Every type and every operation, but not all pairs, which tests on one host cover.
    return op.ordinal() == type.ordinal() % ReduceOp.values().length || Rounds.LONG && op == SUM;
  }

  @Override
  Stream<Arguments> allReduces() {
    return Stream.of(
        Arguments.of("ring", 2, 1, 1),
        Arguments.of("ring", 3, 1, 1),
        Arguments.of("ring", 2, 2, 3),
        Arguments.of("tree", 2, 2, 1),
        Arguments.of("tree", 5, 1, 2),
        Arguments.of("hierarchical", 2, 2, 1),
        Arguments.of("hierarchical", 2, 2, 2),
        Arguments.of("hierarchical", 2, 3, 3),
        Arguments.of("hierarchical", 3, 2, 1));
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4, 7})
  void shouldDoCollectivesAlongATree(int nRanks) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withTransport(Transport.ETHERNET);
    for (Collective kind : ALONG_A_TREE) {
      options = options.withAlgorithm(kind, "tree");
    }
    verify(
        hosts(1, nRanks),
        options.withThreads(nRanks % 2 + 1),
        trial -> {
          for (int count : counts(nRanks)) {
            for (Collective kind : ALONG_A_TREE) {
              for (int root = 0; root < (kind.hasRoot() ? nRanks : 1); root++) {
                trial.run(Shape.of(kind, count).rootedAt(root), count % 5);
                trial.run(Shape.of(kind, count).rootedAt(root).made(true), 0);
              }
            }
          }
          for (int count : new int[] {5, MANY}) {
            trial.run(Shape.of(ALL_REDUCE, count).with(FLOAT32, AVG), 1);
            trial.run(Shape.of(REDUCE_SCATTER, count).with(BFLOAT16, MAX).made(true), 0);
          }
        });
  }

  @ParameterizedTest
  @ValueSource(strings = {"all-pairs", "ring", "tree", "hierarchical"})
  void shouldTimeOutOnAllRanksIfOneDoesNotCall(String algorithm) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withAlgorithm(ALL_REDUCE, algorithm);
    run(
        hosts(2, 2),
        options,
        (rank, collectives) -> {
          rank.awaitAll();
          Duration limit = rank.rank() == 0 ? Duration.ofMillis(300) : LONG;
          if (rank.rank() != 3) {
            DeviceBuffer x = rank.device().allocate(4 << 20);
            CollectiveCall call = allReduce(x, x, 1 << 20, FLOAT32, SUM);
            fails(collectives.run(call, limit), Timeout.class);
          }
          failsJob(rank, Timeout.class);
        });
  }
}
