// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** A rank that closes a lane fails the runs of peers that wait for it. */
@OnRanks(seconds = 120)
class LeaveNoticesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private final CountDownLatch closed = new CountDownLatch(1);

  private static LocalRanks ranks(int hosts) {
    return hosts == 1 ? LocalRanks.of(3) : LocalRanks.ofHosts(hosts, 1);
  }

  private static Collectives open(LocalRank rank) {
    // Too long for a timeout to end these tests.
    return lane(rank, CollectivesOptions.DEFAULT.withTimeout(Duration.ofMinutes(10)));
  }

  private static Mono<Void> reduce(Collectives collectives, LocalRank rank) {
    DeviceBuffer x = rank.device().allocate(1 << 20);
    return collectives.allReduce(x, INT32, SUM);
  }

  private static void expectMissing(Mono<Void> run, String number) {
    fails(run, RemoteFailure.class, "rank 1 left after " + number);
  }

  @ParameterizedTest(name = "{0} hosts, closes its communicator: {1}")
  @CsvSource({"1,false", "3,false", "1,true", "3,true"})
  void shouldEndRunsThatWaitForARankThatLeft(int hosts, boolean isCommunicator) {
    try (LocalRanks ranks = ranks(hosts)) {
      ranks.run(LONG, rank -> leave(rank, isCommunicator));
    }
  }

  private void leave(LocalRank rank, boolean isCommunicator) throws Exception {
    Collectives collectives = open(rank);
    Pipeline two =
        collectives.pipeline().barrier().allReduce(rank.device().allocate(64), INT32, SUM);
    completes(two.capture().run());
    completes(reduce(collectives, rank));
    rank.awaitAll();
    if (rank.rank() != 1) {
      assertThat(!isCommunicator || closed.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
      expectMissing(reduce(collectives, rank), "3 collectives");
    } else if (isCommunicator) {
      StepVerifier.create(reduce(collectives, rank))
          .then(rank.communicator()::close)
          .expectError(Aborted.class)
          .verify(LONG);
      closed.countDown();
    } else {
      collectives.close();
    }
  }

  @Test
  void shouldRefuseAnInvalidCallWithoutAbortAfterAPeerHasLeft(LocalRank rank) throws Exception {
    Collectives collectives = open(rank);
    completes(reduce(collectives, rank));
    DeviceBuffer small = rank.device().allocate(4);
    if (rank.rank() == 1) {
      collectives.close();
      closed.countDown();
    } else {
      assertThat(closed.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
      fails(collectives.allReduce(small, small, 2, INT32, SUM), InvalidUsage.class);
      assertThat(rank.communicator().failure()).isNull();
    }
  }

  /**
   * Rank 1 leaves a lane after one collective. The others call one more, and then a send. The job's
   * failure may be late: it waits for the reason of the rank that left.
   *
   * @param lane which rank 1 leaves
   * @param missed has a collective of that lane, and runs on the other one
   */
  private static void expectNothingOvertakes(
      LocalRank rank, Collectives on, Collectives lane, Supplier<Mono<Void>> missed) {
    completes(reduce(lane, rank));
    rank.awaitAll();
    if (rank.rank() == 1) {
      lane.close();
      return;
    }
    DeviceBuffer x = rank.device().allocate(4);
    CompletableFuture<Void> refused = missed.get().toFuture();
    Mono<Void> later = rank.rank() == 0 ? on.send(x, 1, INT32, 2) : on.recv(x, 1, INT32, 0);
    fails(later, RemoteFailure.class, "rank 1 left after 1 collectives");
    assertThat(refused).failsWithin(LONG);
  }

  @Test
  @OnRanks(3)
  void shouldLetNoCallOvertakeOneThatAMissingRankRefuses(LocalRank rank) {
    Collectives lane = open(rank);
    expectNothingOvertakes(rank, lane, lane, () -> reduce(lane, rank));
  }

  @Test
  @OnRanks(3)
  void shouldLetNoCallOvertakeAPipelineIfARankLeftItsOtherLane(LocalRank rank) {
    Collectives collectives = open(rank);
    Collectives other = collectives.lane("other").join();
    DeviceBuffer x = rank.device().allocate(4);
    CollectiveCall missed = CollectiveCall.allReduce(x, x, 1, INT32, SUM);
    expectNothingOvertakes(
        rank, collectives, other, () -> collectives.pipeline().then(other, missed).run());
  }

  @Test
  void shouldIgnoreNoticesOfAnotherLaneWithAnEqualTag(LocalRank rank) {
    Collectives first = null;
    for (int round = 0; round < 6; round++) {
      Collectives collectives = open(rank);
      first = round == 0 ? collectives : first;
      for (int i = 0; i < 6 - round; i++) {
        completes(reduce(collectives, rank));
      }
      if (rank.rank() == round % 2) {
        collectives.close(); // the other rank's lane stays open until the end
      }
    }
    assertThat(rank.communicator().failure()).isNull();
    rank.awaitAll();
    if (rank.rank() == 1) {
      fails(reduce(first, rank), RemoteFailure.class, "rank 0 left after 6 collectives");
    }
  }

  @Test
  void shouldAbortOnAMalformedNotice(LocalRank rank) {
    open(rank);
    rank.awaitAll();
    if (rank.rank() == 0) {
      int tag = CollectivesOptions.DEFAULT.tag();
      rank.communicator().sendNotice(1, tag, new byte[3], Deadline.after(LONG));
    }
    failsJob(rank, TransportFailure.class, "malformed notice of its lane");
  }
}
