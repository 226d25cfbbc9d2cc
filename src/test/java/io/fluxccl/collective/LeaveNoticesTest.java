// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** A rank that closes a lane fails the runs of peers that wait for it. */
class LeaveNoticesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static LocalRanks ranks(int hosts) {
    return hosts == 1 ? LocalRanks.of(3) : LocalRanks.ofHosts(hosts, 1);
  }

  private static Collectives open(LocalRank rank) {
    // Too long for a timeout to end these tests.
    return Collectives.create(
            rank.communicator(), CollectivesOptions.DEFAULT.withTimeout(Duration.ofMinutes(10)))
        .join();
  }

  private static Mono<Void> reduce(Collectives collectives, LocalRank rank) {
    DeviceBuffer x = rank.device().allocate(1 << 20);
    return collectives.allReduce(x, DataType.INT32, ReduceOp.SUM);
  }

  private static void expectMissing(Mono<Void> run, String number) {
    ParkingStepVerifier.create(run, LONG)
        .expectErrorSatisfies(
            e ->
                assertThat(e)
                    .isInstanceOf(RemoteFailure.class)
                    .hasMessageContaining("rank 1 left after " + number))
        .verify(LONG);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldEndRunsThatWaitForARankThatClosedItsLane(int hosts) {
    CountDownLatch done = new CountDownLatch(3);
    try (LocalRanks ranks = ranks(hosts)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank);
            Pipeline two =
                collectives
                    .pipeline()
                    .barrier()
                    .allReduce(rank.device().allocate(64), DataType.INT32, ReduceOp.SUM);
            ParkingStepVerifier.create(two.capture().run(), LONG).expectComplete().verify(LONG);
            ParkingStepVerifier.create(reduce(collectives, rank), LONG)
                .expectComplete()
                .verify(LONG);
            done.countDown();
            assertThat(done.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            if (rank.rank() == 1) {
              collectives.close();
            } else {
              expectMissing(reduce(collectives, rank), "3 collectives");
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldEndRunsThatWaitForARankThatClosedItsCommunicator(int hosts) {
    CountDownLatch done = new CountDownLatch(3);
    CountDownLatch closed = new CountDownLatch(1);
    try (LocalRanks ranks = ranks(hosts)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank);
            ParkingStepVerifier.create(reduce(collectives, rank), LONG)
                .expectComplete()
                .verify(LONG);
            done.countDown();
            assertThat(done.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            if (rank.rank() == 1) {
              StepVerifier.create(reduce(collectives, rank))
                  .then(rank.communicator()::close)
                  .expectError(Aborted.class)
                  .verify(LONG);
              closed.countDown();
            } else {
              assertThat(closed.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
              expectMissing(reduce(collectives, rank), "1 collectives");
            }
          });
    }
  }

  @Test
  void shouldRefuseAnInvalidCallWithoutAbortAfterAPeerHasLeft() {
    CountDownLatch left = new CountDownLatch(1);
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank);
            ParkingStepVerifier.create(reduce(collectives, rank), LONG)
                .expectComplete()
                .verify(LONG);
            DeviceBuffer small = rank.device().allocate(4);
            if (rank.rank() == 1) {
              collectives.close();
              left.countDown();
            } else {
              assertThat(left.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
              ParkingStepVerifier.create(
                      collectives.allReduce(small, small, 2, DataType.INT32, ReduceOp.SUM), LONG)
                  .expectError(InvalidUsage.class)
                  .verify(LONG);
              assertThat(rank.communicator().failure()).isNull();
            }
          });
    }
  }

  @Test
  void shouldIgnoreNoticesOfAnotherLaneWithAnEqualTag() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            for (int round = 0; round < 6; round++) {
              Collectives collectives = open(rank);
              for (int i = 0; i < 6 - round; i++) {
                ParkingStepVerifier.create(reduce(collectives, rank), LONG)
                    .expectComplete()
                    .verify(LONG);
              }
              if (rank.rank() == round % 2) {
                collectives.close(); // the other rank's lane stays open until the end
              }
            }
            assertThat(rank.communicator().failure()).isNull();
          });
    }
  }

  @Test
  void shouldAbortOnAMalformedNotice() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            open(rank);
            rank.awaitAll();
            Communicator communicator = rank.communicator();
            if (rank.rank() == 0) {
              communicator.sendNotice(
                  1, CollectivesOptions.DEFAULT.tag(), new byte[3], Deadline.after(LONG));
            }
            assertThat(communicator.failed())
                .succeedsWithin(LONG)
                .isInstanceOf(TransportFailure.class)
                .satisfies(e -> assertThat(e).hasMessageContaining("malformed notice of its lane"));
          });
    }
  }
}
