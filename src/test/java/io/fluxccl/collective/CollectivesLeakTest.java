// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Set;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Repeated set-up and tear-down leaks no resources. */
class CollectivesLeakTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  @ParameterizedTest
  @CsvSource({"SHM,true", "ETHERNET,true", "SHM,false", "ETHERNET,false"})
  void shouldLeaveNothingAfterManyRounds(Transport transport, boolean closed) {
    Set<Thread> others = Thread.getAllStackTraces().keySet();
    round(transport, closed); // loads classes and native libraries
    Awaitility.await()
        .atMost(LONG)
        .untilAsserted(
            () ->
                assertThat(Thread.getAllStackTraces().keySet())
                    .filteredOn(thread -> !others.contains(thread))
                    .extracting(Thread::getName)
                    .noneMatch(name -> name.matches("(fluxccl|rank)-.*")));
    ResourceLeaks before = ResourceLeaks.snapshot();
    int rounds = Rounds.of(20, 100);
    for (int i = 0; i < rounds; i++) {
      round(transport, closed);
    }
    before.assertNone(LONG);
  }

  private static void round(Transport transport, boolean closed) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(100_000);
            CollectivesOptions options = CollectivesOptions.DEFAULT.withTransport(transport);
            Collectives collectives = lane(rank, options);
            collectives.allReduce(buffer, INT32, SUM).block(LONG);
            NamedCollectives named = collectives.named().join();
            named.of("x").allReduce(buffer, INT32, SUM).block(LONG);
            if (closed) {
              named.close();
              collectives.close();
            }
            buffer.close();
          });
    }
  }

  /** A failure leaves a lane on a caller's stream open, for graphs that its owner may launch. */
  @Test
  void shouldReleaseALaneOnACallersStreamAfterAFailure() {
    failedRound(); // loads classes
    ResourceLeaks before = ResourceLeaks.snapshot();
    failedRound();
    before.assertNone(LONG);
  }

  private static void failedRound() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            Communicator communicator = rank.communicator();
            Collectives collectives = Collectives.create(communicator).join();
            try (DeviceStream stream = rank.device().createStream("callers");
                DeviceBuffer buffer = rank.device().allocate(100_000)) {
              Collectives lane = collectives.lane(stream).join();
              lane.allReduce(buffer, INT32, SUM).block(LONG);
              rank.awaitAll();
              communicator.abort(Aborted.of(rank.rank(), "a test's failure"));
              assertThat(communicator.failed()).succeedsWithin(LONG);
              communicator.close();
            }
          });
    }
  }
}
