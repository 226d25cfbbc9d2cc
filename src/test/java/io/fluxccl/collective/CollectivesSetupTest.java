// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Opening and closing lanes, also concurrently and in continuations. */
class CollectivesSetupTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static Collectives open(LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  private static CollectivesOptions over(Transport transport) {
    return CollectivesOptions.DEFAULT.withTransport(transport);
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldRefuseToRegisterBuffersOfDifferentSizesOnEveryRank(Transport transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, over(transport));
            long size = rank.rank() == 1 ? 4096 : 8192;
            try (DeviceBuffer buffer = rank.device().allocate(size)) {
              CompletableFuture<?> registering = collectives.register(buffer);
              assertThatThrownBy(() -> registering.get(60, TimeUnit.SECONDS))
                  .cause()
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("rank " + rank.rank())
                  .hasMessageContaining("4096")
                  .hasMessageContaining("8192");
            }
          });
    }
  }

  @Test
  void shouldCloseARegistrationAfterAnotherHasFailed() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT);
                DeviceBuffer one = rank.device().allocate(64);
                DeviceBuffer other = rank.device().allocate(64)) {
              Registration registered = collectives.register(one).join();
              if (rank.rank() == 1) {
                rank.bootstrap().exchange(0, new byte[0], Deadline.after(LONG)).join();
              } else {
                assertThat(collectives.register(other))
                    .failsWithin(LONG)
                    .withThrowableThat()
                    .withCauseInstanceOf(RemoteFailure.class);
              }
              assertThatCode(registered::close).doesNotThrowAnyException();
              rank.awaitAll();
              assertThat(rank.communicator().failure()).isNull();
            }
          });
    }
  }

  @Test
  void shouldLeaveThePeersBuffersAloneAfterGivingUp() {
    int words = 1 << 16;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(words * 4L);
            HostMemory.fill(buffer.address(), words * 4L, (byte) 1);
            CollectivesOptions options =
                CollectivesOptions.DEFAULT
                    .withTimeout(Duration.ofMillis(700))
                    .withSetupTimeout(LONG)
                    .withThreads(2);
            try (Collectives collectives = open(rank, options)) {
              collectives.register(buffer).join();
              rank.awaitAll();
              if (rank.rank() == 0) {
                assertThatThrownBy(
                        () ->
                            collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG))
                    .isInstanceOf(Timeout.class);
              } else {
                rank.communicator().failed().get(60, TimeUnit.SECONDS);
              }
            }
            long mismatches = 0;
            for (int i = 0; i < words; i++) {
              mismatches += HostMemory.getInt(buffer.address() + i * 4L) == 0x01010101 ? 0 : 1;
            }
            assertThat(mismatches).isZero();
          });
    }
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
              try (Collectives collectives = open(rank, over(transport))) {
                if (round % 2 == 0) {
                  collectives.register(buffer).join();
                }
                collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
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

  @Test
  void shouldKeepCollectivesApartIfOpenedConcurrently() {
    int lanes = 8;
    try (LocalRanks ranks = LocalRanks.of(3)) {
      for (int round = 0; round < 3; round++) {
        ranks.run(
            LONG,
            rank -> {
              List<CompletableFuture<Collectives>> opening = new ArrayList<>();
              for (int i = 0; i < lanes; i++) {
                opening.add(Collectives.create(rank.communicator()));
              }
              for (int i = 0; i < lanes; i++) {
                try (DeviceBuffer buffer = rank.device().allocate(4)) {
                  HostMemory.putInt(buffer.address(), 1 + i * 1000);
                  Collectives collectives = opening.get(i).get(60, TimeUnit.SECONDS);
                  collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
                  assertThat(HostMemory.getInt(buffer.address())).isEqualTo(3 + i * 3000);
                }
              }
              opening.forEach(one -> one.join().close());
            });
      }
    }
  }

  @Test
  void shouldReportWrongArgumentsThroughTheFuture() {
    assertThatThrownBy(() -> CollectivesOptions.DEFAULT.withThreads(1025))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("1024");
    try (LocalRanks ranks = LocalRanks.of(1);
        LocalRanks others = LocalRanks.of(1)) {
      try (Collectives collectives = open(ranks.ranks().get(0), CollectivesOptions.DEFAULT);
          DeviceBuffer theirs = others.ranks().get(0).device().allocate(64)) {
        assertThat(collectives.register(theirs))
            .failsWithin(LONG)
            .withThrowableThat()
            .withCauseInstanceOf(InvalidUsage.class);
      }
    }
  }

  @Test
  void shouldAllowBlockingInContinuationsOfCreate() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      List<CompletableFuture<Integer>> results = new ArrayList<>();
      for (LocalRank rank : ranks.ranks()) {
        DeviceBuffer buffer = rank.device().allocate(4);
        HostMemory.putInt(buffer.address(), 1);
        results.add(
            Collectives.create(rank.communicator())
                .thenApply(
                    first -> {
                      // A second set-up in a continuation of the first, and then a run.
                      open(rank, CollectivesOptions.DEFAULT);
                      first.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
                      return HostMemory.getInt(buffer.address());
                    }));
      }
      for (CompletableFuture<Integer> result : results) {
        assertThat(result).succeedsWithin(LONG).isEqualTo(2);
      }
    }
  }

  @Test
  void shouldTakeATimeLimitOfAnyLength() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      LocalRank rank = ranks.ranks().get(0);
      Duration ever = Duration.ofSeconds(Long.MAX_VALUE);
      try (DeviceBuffer buffer = rank.device().allocate(64);
          Collectives collectives = open(rank, CollectivesOptions.DEFAULT.withTimeout(ever))) {
        collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldEndProxyThreadsIfCollectivesAreNeverClosed(Transport transport) {
    Set<Thread> before = proxyThreads();
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            open(rank, over(transport));
            rank.awaitAll();
          });
    }
    Awaitility.await()
        .atMost(LONG)
        .untilAsserted(() -> assertThat(before).containsAll(proxyThreads()));
  }

  private static Set<Thread> proxyThreads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-proxy"))
        .collect(Collectors.toSet());
  }
}
