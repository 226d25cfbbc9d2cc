// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.BROADCAST;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The contract on the host device. */
class HierarchyHostTest extends HierarchyContract {
  @Override
  boolean onGpus() {
    return false;
  }

  @Override
  Stream<Arguments> jobs() {
    return Stream.of(
        Arguments.of(2, 2, 1),
        Arguments.of(2, 2, 2),
        Arguments.of(3, 2, 1),
        Arguments.of(2, 3, 3),
        Arguments.of(4, 2, 1));
  }

  @ParameterizedTest
  @CsvSource({"2,2,1", "2,2,2", "3,2,1", "2,3,3"})
  void shouldAllReduceOnRegisteredBuffersByHosts(int hosts, int ranksPerHost, int threads) {
    run(
        hosts(hosts, ranksPerHost),
        byHosts().withThreads(threads),
        (rank, collectives) -> {
          CollectiveVerifier trial = new CollectiveVerifier(collectives, true);
          for (int count : new int[] {1, 3, 1023, 65_537, MANY, 3 * MANY}) {
            Shape shape = Shape.of(ALL_REDUCE, count);
            trial.run(shape.with(FLOAT32, AVG), count % 5);
            trial.run(shape.made(true), 0);
          }
        });
  }

  /** Ranks that call late and overwrite at once: peers access memory only during the call. */
  @ParameterizedTest
  @MethodSource("ended")
  void shouldAllowLateRanksAndOverwritingAfterCompletion(Collective kind) {
    int most = 120_000;
    run(
        hosts(2, 2),
        byHosts(),
        (rank, collectives) -> {
          try (DeviceBuffer in = rank.device().allocate(most * 4L);
              DeviceBuffer out = rank.device().allocate(most * 4L)) {
            collectives.register(in).join();
            collectives.register(out).join();
            for (int round = 0; round < Rounds.of(8, 24); round++) {
              int n = round % 4 == 0 ? 100 : most;
              HostMemory.fill(in.address(), n * 4L, (byte) (rank.rank() + 1));
              HostMemory.fill(out.address(), n * 4L, (byte) 0x55);
              if (round % 4 == rank.rank()) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(round % 3));
              }
              complete(collectives.run(call(kind, in, out, n, round % 4)));
              HostMemory.fill(in.address(), n * 4L, (byte) 0x77);
              checkOutput(kind, rank, out, n, round);
            }
          }
        });
  }

  private static void checkOutput(
      Collective kind, LocalRank rank, DeviceBuffer out, int n, int round) {
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

  @Test
  void shouldRefuseByHostsIfRanksDisagree() {
    run(
        hosts(2, 2),
        byHosts().withChecks(true),
        (rank, collectives) -> {
          DeviceBuffer x = rank.device().allocate(4 << 20);
          DeviceBuffer y = rank.device().allocate(4 << 20);
          int count = rank.rank() == 2 ? 1 << 19 : 1 << 20;
          ParkingStepVerifier.create(collectives.run(call(ALL_GATHER, x, y, count, 0)), LONG)
              .expectError(InvalidUsage.class)
              .verify(LONG);
          complete(collectives.run(call(ALL_GATHER, x, y, 1 << 18, 0)));
        });
  }

  @ParameterizedTest
  @ValueSource(strings = {"001", "01101"})
  void shouldServeHostsOfUnevenlyManyRanks(String hostOf) {
    List<Long> hosts = hostOf.chars().mapToObj(digit -> (long) digit - '0').toList();
    for (String algorithm : List.of("all-pairs", "ring")) {
      run(
          hosts(hosts),
          CollectivesOptions.DEFAULT.withAlgorithm(ALL_REDUCE, algorithm),
          (rank, collectives) -> {
            CollectiveVerifier trial = new CollectiveVerifier(collectives);
            for (Collective kind : Collective.plain()) {
              trial.run(Shape.of(kind, 30_011).rootedAt(2), 1);
            }
            int tag = 100;
            for (Collective kind : List.of(ALL_REDUCE, BROADCAST)) {
              CollectivesOptions refused =
                  CollectivesOptions.DEFAULT.withAlgorithm(kind, "hierarchical").withTag(tag++);
              assertThatThrownBy(() -> open(rank, refused)).hasCauseInstanceOf(InvalidUsage.class);
            }
          });
    }
  }
}
