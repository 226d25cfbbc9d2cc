// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Connections that two ranks make when one of them first posts. */
@Ranks(value = 2, leakCheck = false)
class OnDemandConnectTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final TransportFlags ETHERNET = TransportFlags.of(Transport.ETHERNET);

  private static Connection connect(
      LocalRank rank, int tag, long own, long theirs, Duration limit) {
    EndpointConfig config = EndpointConfig.of(Transport.ETHERNET).withConnectTimeout(limit);
    return rank.communicator()
        .connectOnDemand(1 - rank.rank(), tag, config, own, theirs)
        .orElseThrow();
  }

  private static RegisteredMemory[] exchange(LocalRank rank, DeviceBuffer buffer) {
    return rank.communicator()
        .exchangeMemory(
            0, () -> rank.communicator().registerMemory(buffer, ETHERNET), Deadline.after(LONG))
        .join();
  }

  private static void signal(Connection connection, RegisteredMemory target, long value) {
    connection.updateAndSync(target, 0, new AtomicLong(), value);
  }

  private static void await(DeviceBuffer buffer, long value) {
    long began = HangLimit.start();
    while (HostMemory.getLongAcquire(buffer.address()) != value) {
      HangLimit.check(began, "the value arrives");
      Thread.onSpinWait();
      Thread.yield();
    }
  }

  @Test
  void shouldConnectOnceWhenBothEndsPostAtOnce(LocalRank rank) throws Exception {
    DeviceBuffer buffer = rank.device().allocate(64);
    RegisteredMemory[] memories = exchange(rank, buffer);
    for (int tag = 0; tag < 30; tag++) {
      Connection connection = connect(rank, tag, rank.rank(), 1 - rank.rank(), LONG);
      rank.awaitAll();
      signal(connection, memories[1 - rank.rank()], tag + 1);
      await(buffer, tag + 1);
      connection.flush(LONG).get(60, TimeUnit.SECONDS);
      rank.awaitAll();
      connection.close();
    }
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldIgnoreRequestsToAnEarlierUserOfTheTag(LocalRank rank) {
    DeviceBuffer buffer = rank.device().allocate(64);
    RegisteredMemory[] memories = exchange(rank, buffer);
    if (rank.rank() == 0) {
      Connection early = connect(rank, 5, 77, 1, LONG);
      signal(early, memories[1], 1);
      while (!early.isInUse()) {
        Thread.onSpinWait();
      }
      early.close();
    }
    rank.awaitAll();
    Connection connection = connect(rank, 5, rank.rank(), 1 - rank.rank(), LONG);
    assertThat(connection.isInUse()).isFalse();
    rank.awaitAll();
    if (rank.rank() == 0) {
      signal(connection, memories[1], 2);
    } else {
      await(buffer, 2);
    }
    rank.awaitAll();
    assertThat(connection.isInUse()).isTrue();
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldAbortWhenThePeerDoesNotAnswerInTime(LocalRank rank) throws Exception {
    DeviceBuffer buffer = rank.device().allocate(64);
    RegisteredMemory[] memories = exchange(rank, buffer);
    if (rank.rank() == 0) {
      signal(connect(rank, 5, 0, 1, Duration.ofMillis(300)), memories[1], 1);
    }
    assertThat(failsJob(rank, Timeout.class, "rank 1").rank()).isEqualTo(1);
  }

  @Test
  void shouldEndWithTheCommunicatorWhileItConnects(LocalRank rank) throws Exception {
    DeviceBuffer buffer = rank.device().allocate(64);
    RegisteredMemory[] memories = exchange(rank, buffer);
    if (rank.rank() == 0) {
      Connection connection = connect(rank, 5, 0, 1, LONG);
      signal(connection, memories[1], 1);
      rank.awaitAll();
      rank.communicator().failed().get(60, TimeUnit.SECONDS);
      rank.communicator().close();
      assertThat(connection.failed().get(60, TimeUnit.SECONDS)).isNotNull();
    } else {
      rank.awaitAll();
      rank.communicator().abort(Aborted.of(1, "as the test wants"));
    }
    assertThat(rank.communicator().failure()).hasMessageContaining("as the test wants");
  }

  @Test
  @Ranks(value = 3, leakCheck = false)
  void shouldFailAnExchangeOnAllRanksIfOneCannotRegister(LocalRank rank) {
    DeviceBuffer buffer = rank.device().allocate(64);
    CompletableFuture<RegisteredMemory[]> exchange =
        rank.communicator()
            .exchangeMemory(
                3,
                () -> {
                  if (rank.rank() == 1) {
                    throw new InvalidUsage("as the test wants");
                  }
                  return rank.communicator().registerMemory(buffer, ETHERNET);
                },
                Deadline.after(LONG));
    assertFails(
        exchange, rank.rank() == 1 ? InvalidUsage.class : RemoteFailure.class, "as the test wants");
    assertThat(rank.communicator().failure()).isNull();
    rank.awaitAll();
  }
}
