// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Opening and closing lanes, also concurrently and in continuations. */
@OnRanks(seconds = 120)
class CollectivesSetupTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static CollectivesOptions over(Transport transport) {
    return CollectivesOptions.DEFAULT.withTransport(transport);
  }

  @Test
  void shouldCloseARegistrationAfterAnotherHasFailed(LocalRank rank) {
    try (Collectives collectives = lane(rank, CollectivesOptions.DEFAULT);
        DeviceBuffer one = rank.device().allocate(64);
        DeviceBuffer other = rank.device().allocate(64)) {
      Registration registered = collectives.register(one).join();
      if (rank.rank() == 1) {
        rank.bootstrap().exchange(0, new byte[0], Deadline.after(LONG)).join();
      } else {
        fails(collectives.register(other), RemoteFailure.class);
      }
      assertThatCode(registered::close).doesNotThrowAnyException();
      rank.awaitAll();
      assertThat(rank.communicator().failure()).isNull();
    }
  }

  @Test
  void shouldLeaveThePeersBuffersAloneAfterGivingUp(LocalRank rank) throws Exception {
    int words = 1 << 16;
    DeviceBuffer buffer = rank.device().allocate(words * 4L);
    HostMemory.fill(buffer.address(), words * 4L, (byte) 1);
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTimeout(Duration.ofMillis(700))
            .withSetupTimeout(LONG)
            .withThreads(2);
    try (Collectives collectives = lane(rank, options)) {
      collectives.register(buffer).join();
      rank.awaitAll();
      if (rank.rank() == 0) {
        fails(collectives.allReduce(buffer, INT32, SUM), Timeout.class);
      } else {
        rank.communicator().failed().get(60, TimeUnit.SECONDS);
      }
    }
    assertThat(Bytes.of(buffer)).containsOnly(1);
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldAllowEveryRankToCloseAsSoonAsItIsDone(Transport transport) {
    // Busy threads take cores, so that ranks are preempted between two steps.
    AtomicBoolean done = new AtomicBoolean();
    for (int i = 0; i < 4; i++) {
      Thread busy =
          new Thread(
              () -> {
                while (!done.get()) {
                  Thread.onSpinWait();
                }
              },
              "busy");
      busy.setDaemon(true);
      busy.start();
    }
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            for (int round = 0; round < Rounds.of(4, 15); round++) {
              DeviceBuffer buffer = rank.device().allocate(60_000);
              HostMemory.fill(buffer.address(), 60_000, (byte) 0);
              HostMemory.putInt(buffer.address() + 4L * rank.rank(), 1);
              try (Collectives collectives = lane(rank, over(transport))) {
                if (round % 2 == 0) {
                  collectives.register(buffer).join();
                }
                collectives.allReduce(buffer, INT32, SUM).block(LONG);
              }
              for (int i = 0; i < rank.nRanks(); i++) {
                assertThat(HostMemory.getInt(buffer.address() + 4L * i)).isEqualTo(1);
              }
              buffer.close();
            }
            rank.awaitAll();
            assertThat(rank.communicator().failure()).isNull();
          });
    } finally {
      done.set(true);
    }
  }

  @RepeatedTest(3)
  @OnRanks(3)
  void shouldKeepCollectivesApartIfOpenedConcurrently(LocalRank rank) throws Exception {
    List<CompletableFuture<Collectives>> opening = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      opening.add(Collectives.create(rank.communicator()));
    }
    IntView x = rank.device().allocateInts(1);
    for (int i = 0; i < opening.size(); i++) {
      x.put(0, 1 + i * 1000);
      opening.get(i).get(60, TimeUnit.SECONDS).allReduce(x, SUM).block(LONG);
      assertThat(x.get(0)).isEqualTo(3 + i * 3000);
    }
    opening.forEach(one -> one.join().close());
  }

  @Test
  @OnRanks(1)
  void shouldReportWrongArgumentsThroughTheFuture(Collectives collectives) {
    refuses(() -> CollectivesOptions.DEFAULT.withThreads(1025), "1024");
    try (HostDevice other = HostDevice.create();
        DeviceBuffer theirs = other.allocate(64)) {
      fails(collectives.register(theirs), InvalidUsage.class);
    }
  }

  @Test
  void shouldAllowBlockingInContinuationsOfCreate(LocalRank rank) {
    IntView x = rank.device().allocateInts(1);
    x.put(0, 1);
    CompletableFuture<Integer> result =
        Collectives.create(rank.communicator())
            .thenApply(
                first -> {
                  // A second set-up in a continuation of the first, and then a run.
                  lane(rank, CollectivesOptions.DEFAULT);
                  first.allReduce(x, SUM).block(LONG);
                  return x.get(0);
                });
    assertThat(result).succeedsWithin(LONG).isEqualTo(2);
  }
}
