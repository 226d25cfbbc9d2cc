// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.plugin.NetTransport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** All-reduce inside the network: the test's plug-in sums floats of one process. */
@RequiresNativeLibrary
@Timeout(240)
class CollNetAllReduceTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  @TempDir private static Path folder;

  @AfterEach
  void clear() {
    System.clearProperty(NetTransport.LIBRARY_PROPERTY);
    System.clearProperty(RailNetwork.PROPERTY);
  }

  private static void allow(Path library) {
    System.setProperty(NetTransport.LIBRARY_PROPERTY, library.toString());
    System.setProperty(RailNetwork.PROPERTY, "1");
  }

  private static void onHosts(
      int hosts,
      int ranksPerHost,
      CollectivesOptions options,
      BiConsumer<Collectives, CollectiveVerifier> body) {
    try (LocalRanks ranks = LocalRanks.ofHosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              body.accept(collectives, new CollectiveVerifier(collectives));
            }
          });
    }
  }

  private static String algorithm(Collectives collectives, int count, DataType type, ReduceOp op) {
    try (DeviceBuffer x =
        collectives.communicator().device().allocate((long) count * type.size())) {
      return collectives.algorithmFor(CollectiveCall.allReduce(x, x, count, type, op));
    }
  }

  @ParameterizedTest
  @CsvSource({"11,2,1,1", "11,2,2,2", "6,3,2,1", "11,3,1,2", "12,2,3,3"})
  void shouldReduceBetweenHosts(int version, int hosts, int ranksPerHost, int threads)
      throws Exception {
    allow(TestNet.collectiveLibrary(folder, version));
    onHosts(
        hosts,
        ranksPerHost,
        CollectivesOptions.DEFAULT
            .withThreads(threads)
            .withAlgorithm(Collective.ALL_REDUCE, "collnet"),
        (collectives, trial) -> {
          assertThat(algorithm(collectives, 1000, DataType.FLOAT32, ReduceOp.SUM))
              .isEqualTo("collnet");
          for (int count : new int[] {1, 3, 1023, 65_537, 300_007}) {
            for (ReduceOp op : new ReduceOp[] {ReduceOp.SUM, ReduceOp.AVG}) {
              Shape shape = Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, op);
              trial.run(shape, count % 5);
              trial.run(shape.made(true), 0);
            }
            // The network does not support these calls, so other algorithms run them.
            trial.run(
                Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, ReduceOp.MAX), 0);
            trial.run(
                Shape.of(Collective.ALL_REDUCE, count).with(DataType.BFLOAT16, ReduceOp.SUM), 0);
            trial.run(Shape.of(Collective.ALL_GATHER, count % 2000), 0);
            // Ranks of a host access each other's registered buffers.
            new CollectiveVerifier(collectives, true)
                .run(
                    Shape.of(Collective.ALL_REDUCE, count).with(DataType.FLOAT32, ReduceOp.AVG), 0);
          }
        });
  }

  @Test
  void shouldBeChosenIfTheNetworkReducesTheType() throws Exception {
    allow(TestNet.collectiveLibrary(folder, 11));
    onHosts(
        2,
        2,
        CollectivesOptions.DEFAULT,
        (collectives, trial) -> {
          for (int count : new int[] {1000, 1_000_000}) {
            assertThat(algorithm(collectives, count, DataType.FLOAT32, ReduceOp.SUM))
                .isEqualTo("collnet");
            assertThat(algorithm(collectives, count, DataType.FLOAT32, ReduceOp.MAX))
                .isNotEqualTo("collnet");
            assertThat(algorithm(collectives, count, DataType.FLOAT64, ReduceOp.SUM))
                .isNotEqualTo("collnet");
          }
          trial.run(Shape.of(Collective.ALL_REDUCE, 5000).with(DataType.FLOAT32, ReduceOp.SUM), 1);
        });
  }

  @Test
  void shouldUseOtherAlgorithmsIfTheLibraryHasNoCollectives() throws Exception {
    allow(TestNet.library(folder, 11));
    onHosts(
        2,
        1,
        CollectivesOptions.DEFAULT,
        (collectives, trial) -> {
          assertThat(algorithm(collectives, 1000, DataType.FLOAT32, ReduceOp.SUM))
              .isNotEqualTo("collnet");
          trial.run(Shape.of(Collective.ALL_REDUCE, 5000).with(DataType.FLOAT32, ReduceOp.SUM), 1);
        });
  }

  @Test
  void shouldRefuseCollnetUnlessItIsAllowed() throws Exception {
    System.setProperty(
        NetTransport.LIBRARY_PROPERTY, TestNet.collectiveLibrary(folder, 11).toString());
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1)) {
      ranks.run(
          LONG,
          rank ->
              assertThatThrownBy(
                      () ->
                          Collectives.create(
                                  rank.communicator(),
                                  CollectivesOptions.DEFAULT.withAlgorithm(
                                      Collective.ALL_REDUCE, "collnet"))
                              .join())
                  .hasCauseInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("collnet"));
    }
  }
}
