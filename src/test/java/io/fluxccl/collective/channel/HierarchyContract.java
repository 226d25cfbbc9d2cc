// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.FLOAT8_E4M3;
import static io.fluxccl.DataType.FLOAT8_E5M2;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.ALL_TO_ALL;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.collective.CollectiveCall.gather;
import static io.fluxccl.collective.CollectiveCall.reduceScatter;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

/** Collectives by hosts. */
abstract class HierarchyContract extends BetweenHosts {
  /** Numbers of hosts, of ranks of each, and of threads. */
  Stream<Arguments> jobs() {
    return Stream.of(Arguments.of(2, 2, 0), Arguments.of(3, 2, 0), Arguments.of(3, 3, 0));
  }

  @ParameterizedTest
  @MethodSource("jobs")
  void shouldDoCollectivesOfAnyCountByHosts(int hosts, int ranksPerHost, int threads) {
    int nRanks = hosts * ranksPerHost;
    verify(
        hosts(hosts, ranksPerHost),
        byHosts().withThreads(threads),
        trial -> {
          int round = 0;
          for (int count : counts(nRanks)) {
            for (Collective kind : BY_HOSTS) {
              Shape shape = Shape.of(kind, count).rootedAt(round++ % nRanks);
              trial.run(shape, count % 5);
              trial.run(shape.made(true), 0);
            }
          }
        });
  }

  @ParameterizedTest
  @ValueSource(strings = {"0110", "012210"})
  void shouldSupportEveryRootIfRanksOfHostsAreInterleaved(String hostOf) {
    List<Long> hosts = hostOf.chars().mapToObj(digit -> (long) digit - '0').toList();
    verify(
        hosts(hosts),
        byHosts(),
        trial -> {
          for (int root = 0; root < hosts.size(); root++) {
            for (Collective kind : BY_HOSTS) {
              int count = onGpus() ? 5_011 : 30_011;
              trial.run(Shape.of(kind, count).rootedAt(root).made(root % 2 == 1), 1);
            }
          }
        });
  }

  /** Without -Plong, emulated GPUs test only two collectives; the host device tests all. */
  List<Collective> ended() {
    return onGpus() && EmulatedGpus.HERE && !Rounds.LONG
        ? List.of(ALL_REDUCE, ALL_TO_ALL)
        : BY_HOSTS;
  }

  @ParameterizedTest
  @MethodSource("ended")
  void shouldTimeOutByHostsIfARankDoesNotCall(Collective kind) {
    run(
        hosts(2, 2),
        byHosts(),
        (rank, collectives) -> {
          DeviceBuffer x = rank.device().allocate(8 << 20);
          DeviceBuffer y = rank.device().allocate(8 << 20);
          if (rank.rank() != 3) {
            // At least one rank waits for rank 3; ranks that need no data of it may complete.
            collectives
                .run(call(kind, x, y, 2 << 20, 2), Duration.ofMillis(500))
                .onErrorComplete()
                .block(LONG);
          }
          failsJob(rank, Timeout.class, kind.label());
          rank.awaitAll();
        });
  }

  @ParameterizedTest
  @MethodSource("ended")
  void shouldEndByHostsWhenARankLeavesInTheMiddle(Collective kind) {
    run(
        hosts(2, 2),
        byHosts(),
        (rank, collectives) -> {
          DeviceBuffer x = rank.device().allocate(1 << 20);
          DeviceBuffer y = rank.device().allocate(1 << 20);
          CollectiveCall call = call(kind, x, y, 1 << 18, 2);
          for (int i = 0; i < 3; i++) {
            completes(collectives.run(call));
          }
          rank.awaitAll();
          if (rank.rank() == 1) {
            rank.communicator().close();
            return;
          }
          StepVerifier.create(collectives.run(call).repeat())
              .expectError(FluxCclException.class)
              .verify(LONG);
          failsJob(rank, FluxCclException.class);
        });
  }

  @Test
  void shouldUseTheHierarchyIfItSendsLess() {
    run(
        hosts(2, 2),
        CollectivesOptions.DEFAULT,
        (rank, collectives) -> {
          DeviceBuffer x = rank.device().allocate(4 << 20);
          DeviceBuffer y = rank.device().allocate(4 << 20);
          for (Collective kind : BY_HOSTS) {
            // For all-to-all the hierarchy sends as many bytes between hosts, and more inside.
            String expected = kind == ALL_TO_ALL ? "all-pairs" : "hierarchical";
            CollectiveCall call = call(kind, x, y, 1 << 20, 2);
            assertThat(collectives.algorithmFor(call)).as(kind.label()).isEqualTo(expected);
            assertThat(collectives.algorithmsFor(call)).contains("hierarchical");
          }
          collectives.prefer(ALL_TO_ALL, Optional.of("hierarchical"));
          assertThat(collectives.algorithmFor(call(ALL_TO_ALL, x, y, 1 << 20, 2)))
              .isEqualTo("hierarchical");
          // All-pairs rounds small floats only once.
          CollectiveCall small = allReduce(x, y, 1 << 20, FLOAT8_E5M2, SUM);
          assertThat(collectives.algorithmFor(small)).isEqualTo("all-pairs");
          assertThat(collectives.algorithmsFor(reduceScatter(x, y, 100, FLOAT8_E4M3, SUM)))
              .containsExactly("all-pairs");
          assertThat(collectives.algorithmsFor(gather(x, y, 1000, INT32, 0)))
              .containsExactly("all-pairs");
        });
  }
}
