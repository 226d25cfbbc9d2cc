// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Collectives between GPUs of several hosts, on real or emulated GPUs. */
abstract class ChannelGpuContract {
  private static final Duration LONG = Duration.ofSeconds(180);

  /** Returns the ranks of {@code hosts} hosts with {@code ranksPerHost} ranks each. */
  LocalRanks hosts(int hosts, int ranksPerHost) {
    return LocalRanks.ofHostsOnGpus(hosts, ranksPerHost);
  }

  private void onHosts(
      int hosts, int ranksPerHost, CollectivesOptions options, Consumer<CollectiveVerifier> body) {
    try (LocalRanks ranks = hosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              body.accept(new CollectiveVerifier(collectives));
            } catch (RuntimeException | AssertionError e) {
              System.out.println(rank.communicator().dump());
              throw e;
            }
          });
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      mode = EnumSource.Mode.EXCLUDE,
      names = {"FUSED_ALL_REDUCE", "DISPATCH", "COMBINE"})
  void shouldDoEveryCollectiveBetweenHosts(Collective kind) {
    onHosts(
        2,
        2,
        CollectivesOptions.DEFAULT,
        trial -> {
          for (int count : new int[] {0, 1, 1023, 70_001, 3}) {
            Shape shape = Shape.of(kind, count).rootedAt(count % 4);
            trial.run(shape, count % 5);
            if (kind != Collective.ALL_TO_ALL_V && kind != Collective.SEND_RECEIVE) {
              trial.run(shape.made(true), 0);
            }
          }
        });
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void shouldReduceEveryTypeBetweenHosts(DataType type) {
    onHosts(
        2,
        1,
        CollectivesOptions.DEFAULT,
        trial -> {
          for (ReduceOp op : ReduceOp.values()) {
            trial.run(Shape.of(Collective.ALL_REDUCE, 20_001).with(type, op), 1);
            trial.run(Shape.of(Collective.REDUCE_SCATTER, 777).with(type, op).made(true), 0);
          }
        });
  }

  @ParameterizedTest
  @ValueSource(strings = {"ring", "hierarchical", "all-pairs"})
  void shouldAllReduceByEveryAlgorithm(String algorithm) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
    onHosts(
        2,
        2,
        options,
        trial -> {
          for (int count : new int[] {1, 1000, 65_537, 400_001}) {
            Shape shape =
                Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, ReduceOp.AVG);
            trial.run(shape, count % 3);
            trial.run(shape.with(DataType.FLOAT16, ReduceOp.SUM).made(true), 0);
          }
        });
  }

  @Test
  void shouldAllReduceOverThreeHosts() {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, "hierarchical");
    onHosts(
        3,
        2,
        options,
        trial -> {
          for (int count : new int[] {5, 100_003}) {
            Shape shape = Shape.of(Collective.ALL_REDUCE, count);
            trial.run(shape.with(DataType.BFLOAT16, ReduceOp.SUM), 1);
            trial.run(shape.with(DataType.FLOAT32, ReduceOp.MAX).made(true), 0);
          }
        });
  }
}
