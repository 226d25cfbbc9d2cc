// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
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

  /** Ranks that call late and overwrite at once: peers access memory only during the call. */
  @ParameterizedTest
  @MethodSource("ended")
  void shouldAllowLateRanksAndOverwritingAfterCompletion(Collective kind) {
    for (String algorithm : List.of("hierarchical", "all-pairs")) {
      run(hosts(2, 2), by(algorithm), (rank, collectives) -> overwrite(kind, rank, collectives));
    }
  }

  private static void overwrite(Collective kind, LocalRank rank, Collectives collectives) {
    int most = 120_000;
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
        completes(collectives.run(call(kind, in, out, n, round % 4)));
        HostMemory.fill(in.address(), n * 4L, (byte) 0x77);
        checkOutput(kind, rank, out, n, round);
      }
    }
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
