package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What must not happen when ranks disagree, leave early or give up. */
class AllReduceFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(30);

  private static AllReduceOptions over(Transport transport) {
    return AllReduceOptions.DEFAULT.withTransport(transport);
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldRefuseBuffersOfDifferentSizesOnEveryRank(Transport transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            long size = rank.rank() == 1 ? 4096 : 8192;
            try (DeviceBuffer buffer = rank.device().allocate(size)) {
              CompletableFuture<AllReduce> preparing =
                  AllReduce.prepare(rank.communicator(), rank.stream(), buffer, over(transport));
              assertThatThrownBy(() -> preparing.get(20, TimeUnit.SECONDS))
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
  void shouldLeaveThePeersBuffersAloneAfterGivingUp() {
    int words = 1 << 16;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(words * 4L);
            HostMemory.fill(buffer.address(), words * 4L, (byte) 1);
            AllReduceOptions options =
                AllReduceOptions.DEFAULT.withTimeout(Duration.ofMillis(700)).withThreads(2);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer, options).join()) {
              if (rank.rank() == 0) {
                assertThatThrownBy(
                        () -> allReduce.run(words, DataType.INT32, ReduceOp.SUM).block(LONG))
                    .isInstanceOf(Timeout.class);
                rank.stream().completion().handle((done, failure) -> null).get(5, TimeUnit.SECONDS);
              } else {
                rank.communicator().failed().get(10, TimeUnit.SECONDS);
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
  void shouldLetEveryRankCloseAsSoonAsItIsDone(Transport transport) {
    // Threads that are held up between two steps are what goes wrong: so too few cores.
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
            for (int round = 0; round < 30; round++) {
              DeviceBuffer buffer = rank.device().allocate(60_000);
              HostMemory.fill(buffer.address(), 60_000, (byte) 0);
              HostMemory.putInt(buffer.address() + 4L * rank.rank(), 1);
              try (AllReduce allReduce =
                  AllReduce.prepare(rank.communicator(), rank.stream(), buffer, over(transport))
                      .join()) {
                allReduce.run(15_000, DataType.INT32, ReduceOp.SUM).block(LONG);
              }
              for (int i = 0; i < rank.nRanks(); i++) {
                assertThat(HostMemory.getInt(buffer.address() + 4L * i)).isEqualTo(1);
              }
              buffer.close();
            }
            rank.bootstrap().barrier(Deadline.after(LONG)).join();
            assertThat(rank.communicator().failure()).isNull();
          });
    } finally {
      done.set(true);
    }
  }

  @Test
  void shouldKeepApartWhatIsPreparedAtTheSameTime() {
    int n = 8;
    try (LocalRanks ranks = LocalRanks.of(3)) {
      for (int round = 0; round < 10; round++) {
        ranks.run(
            LONG,
            rank -> {
              List<DeviceBuffer> buffers = new ArrayList<>();
              List<CompletableFuture<AllReduce>> preparing = new ArrayList<>();
              for (int i = 0; i < n; i++) {
                buffers.add(rank.device().allocate(64));
                preparing.add(
                    AllReduce.prepare(rank.communicator(), rank.stream(), buffers.get(i)));
              }
              for (int i = 0; i < n; i++) {
                HostMemory.putInt(buffers.get(i).address(), 1 + i * 1000);
                AllReduce allReduce = preparing.get(i).get(20, TimeUnit.SECONDS);
                allReduce.run(1, DataType.INT32, ReduceOp.SUM).block(LONG);
                assertThat(HostMemory.getInt(buffers.get(i).address())).isEqualTo(3 + i * 3000);
              }
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
              preparing.forEach(one -> one.join().close());
              buffers.forEach(DeviceBuffer::close);
            });
      }
    }
  }

  @Test
  void shouldReportWrongArgumentsThroughTheFuture() {
    try (LocalRanks ranks = LocalRanks.of(2);
        LocalRanks others = LocalRanks.of(2)) {
      LocalRank rank = ranks.ranks().get(0);
      LocalRank foreign = others.ranks().get(0);
      DeviceBuffer mine = rank.device().allocate(64);
      DeviceBuffer theirs = foreign.device().allocate(64);
      assertThat(
              AllReduce.prepare(
                  rank.communicator(), rank.stream(), mine, AllReduceOptions.DEFAULT.withTag(-1)))
          .failsWithin(5, TimeUnit.SECONDS)
          .withThrowableThat()
          .withCauseInstanceOf(InvalidUsage.class);
      assertThat(AllReduce.prepare(rank.communicator(), rank.stream(), theirs))
          .failsWithin(5, TimeUnit.SECONDS)
          .withThrowableThat()
          .withCauseInstanceOf(InvalidUsage.class);
      assertThat(AllReduce.prepare(rank.communicator(), foreign.stream(), mine))
          .failsWithin(5, TimeUnit.SECONDS)
          .withThrowableThat()
          .withCauseInstanceOf(InvalidUsage.class);
      mine.close();
      theirs.close();
    }
  }

  @Test
  void shouldLetWhatIsChainedToPreparingBlock() throws Exception {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      List<CompletableFuture<Integer>> results = new ArrayList<>();
      for (LocalRank rank : ranks.ranks()) {
        DeviceBuffer buffer = rank.device().allocate(64);
        HostMemory.putInt(buffer.address(), 1);
        results.add(
            AllReduce.prepare(rank.communicator(), rank.stream(), buffer)
                .thenApply(
                    first -> {
                      // A second set-up in a continuation of the first, and then a run.
                      AllReduce.prepare(rank.communicator(), rank.stream(), buffer).join();
                      first.run(1, DataType.INT32, ReduceOp.SUM).block(LONG);
                      return HostMemory.getInt(buffer.address());
                    }));
      }
      for (CompletableFuture<Integer> result : results) {
        assertThat(result.get(20, TimeUnit.SECONDS)).isEqualTo(2);
      }
    }
  }

  @Test
  void shouldRefuseMoreThreadsThanABlockHas() {
    assertThatThrownBy(() -> AllReduceOptions.DEFAULT.withThreads(1025))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("1024");
  }

  @Test
  void shouldTakeATimeLimitOfAnyLength() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      LocalRank rank = ranks.ranks().get(0);
      try (DeviceBuffer buffer = rank.device().allocate(64);
          AllReduce allReduce =
              AllReduce.prepare(
                      rank.communicator(),
                      rank.stream(),
                      buffer,
                      AllReduceOptions.DEFAULT.withTimeout(Duration.ofSeconds(Long.MAX_VALUE)))
                  .join()) {
        allReduce.run(1, DataType.INT32, ReduceOp.SUM).block(LONG);
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldEndTheThreadsOfWhatWasNeverClosed(Transport transport) {
    Set<Thread> before = proxyThreads();
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(64);
            AllReduce.prepare(rank.communicator(), rank.stream(), buffer, over(transport)).join();
            rank.bootstrap().barrier(Deadline.after(LONG)).join();
          });
    }
    org.awaitility.Awaitility.await()
        .untilAsserted(() -> assertThat(before).containsAll(proxyThreads()));
  }

  private static Set<Thread> proxyThreads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-proxy"))
        .collect(Collectors.toSet());
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldEndWithATypedErrorWhenAnotherRankCloses(Transport transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(1 << 16);
            AllReduceOptions options = over(transport).withTimeout(Duration.ofSeconds(2));
            AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer, options).join();
            if (rank.rank() == 2) {
              allReduce.close();
              rank.communicator().close();
              return;
            }
            long start = System.nanoTime();
            assertThatThrownBy(
                    () -> {
                      while (Duration.ofNanos(System.nanoTime() - start).compareTo(LONG) < 0) {
                        allReduce.run(1 << 12, DataType.INT32, ReduceOp.SUM).block(LONG);
                      }
                    })
                .isInstanceOf(FluxCclException.class);
            assertThat(Duration.ofNanos(System.nanoTime() - start))
                .isLessThan(Duration.ofSeconds(5));
            allReduce.close();
          });
    }
  }
}
