// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.FLOAT64;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.plugin.NetTransport;
import java.nio.file.Path;
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

  private static String algorithm(Collectives collectives, int count, DataType type, ReduceOp op) {
    try (DeviceBuffer x =
        collectives.communicator().device().allocate((long) count * type.size())) {
      return collectives.algorithmFor(allReduce(x, x, count, type, op));
    }
  }

  @ParameterizedTest
  @CsvSource({"11,2,1,1", "11,2,2,2", "6,3,2,1", "11,3,1,2", "12,2,3,3"})
  void shouldReduceBetweenHosts(int version, int hosts, int ranksPerHost, int threads)
      throws Exception {
    allow(TestNet.collectiveLibrary(folder, version));
    BetweenHosts.run(
        LocalRanks.ofHosts(hosts, ranksPerHost),
        CollectivesOptions.DEFAULT.withThreads(threads).withAlgorithm(ALL_REDUCE, "collnet"),
        (rank, collectives) -> {
          CollectiveVerifier trial = new CollectiveVerifier(collectives);
          assertThat(algorithm(collectives, 1000, FLOAT32, SUM)).isEqualTo("collnet");
          for (int count : new int[] {1, 3, 1023, 65_537, 300_007}) {
            for (ReduceOp op : new ReduceOp[] {SUM, AVG}) {
              Shape shape = Shape.of(ALL_REDUCE, count).with(FLOAT32, op);
              trial.run(shape, count % 5);
              trial.run(shape.made(true), 0);
            }
            // The network does not support these calls, so other algorithms run them.
            trial.run(Shape.of(ALL_REDUCE, count).with(FLOAT32, MAX), 0);
            trial.run(Shape.of(ALL_REDUCE, count).with(BFLOAT16, SUM), 0);
            trial.run(Shape.of(ALL_GATHER, count % 2000), 0);
          }
        });
  }

  @Test
  void shouldBeChosenIfTheNetworkReducesTheType() throws Exception {
    allow(TestNet.collectiveLibrary(folder, 11));
    BetweenHosts.run(
        LocalRanks.ofHosts(2, 2),
        CollectivesOptions.DEFAULT,
        (rank, collectives) -> {
          CollectiveVerifier trial = new CollectiveVerifier(collectives);
          for (int count : new int[] {1000, 1_000_000}) {
            assertThat(algorithm(collectives, count, FLOAT32, SUM)).isEqualTo("collnet");
            assertThat(algorithm(collectives, count, FLOAT32, MAX)).isNotEqualTo("collnet");
            assertThat(algorithm(collectives, count, FLOAT64, SUM)).isNotEqualTo("collnet");
          }
          trial.run(Shape.of(ALL_REDUCE, 5000).with(FLOAT32, SUM), 1);
        });
  }

  @Test
  void shouldUseOtherAlgorithmsIfTheLibraryHasNoCollectives() throws Exception {
    allow(TestNet.library(folder, 11));
    BetweenHosts.run(
        LocalRanks.ofHosts(2, 1),
        CollectivesOptions.DEFAULT,
        (rank, collectives) -> {
          CollectiveVerifier trial = new CollectiveVerifier(collectives);
          assertThat(algorithm(collectives, 1000, FLOAT32, SUM)).isNotEqualTo("collnet");
          trial.run(Shape.of(ALL_REDUCE, 5000).with(FLOAT32, SUM), 1);
        });
  }

  @Test
  void shouldRefuseCollnetUnlessItIsAllowed() throws Exception {
    System.setProperty(
        NetTransport.LIBRARY_PROPERTY, TestNet.collectiveLibrary(folder, 11).toString());
    CollectivesOptions options = CollectivesOptions.DEFAULT.withAlgorithm(ALL_REDUCE, "collnet");
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1)) {
      ranks.run(
          rank ->
              assertFails(
                  Collectives.create(rank.communicator(), options), InvalidUsage.class, "collnet"));
    }
  }
}
