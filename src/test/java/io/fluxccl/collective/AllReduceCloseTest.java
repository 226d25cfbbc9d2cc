package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Closing in any order while runs are enqueued and in flight. */
class AllReduceCloseTest {
  private static final int ROUNDS = 3;

  private enum What {
    ALL_REDUCE,
    COMMUNICATOR,
    DEVICE,
    BOOTSTRAP
  }

  @ParameterizedTest
  @CsvSource({
    "SHM,ALL_REDUCE", "SHM,COMMUNICATOR", "SHM,DEVICE", "SHM,BOOTSTRAP",
    "ETHERNET,ALL_REDUCE", "ETHERNET,COMMUNICATOR", "ETHERNET,DEVICE", "ETHERNET,BOOTSTRAP"
  })
  void shouldEndEveryRunWithATypedErrorWhenClosedMeanwhile(Transport transport, What what)
      throws Exception {
    for (int round = 0; round < ROUNDS; round++) {
      try (LocalRanks ranks = LocalRanks.of(2)) {
        List<CompletableFuture<AllReduce>> preparing = new ArrayList<>();
        List<DeviceBuffer> buffers = new ArrayList<>();
        for (LocalRank rank : ranks.ranks()) {
          buffers.add(rank.device().allocate(1 << 16));
          AllReduceOptions options =
              AllReduceOptions.DEFAULT
                  .withTransport(transport)
                  .withThreads(2)
                  .withTimeout(Duration.ofMillis(200));
          preparing.add(
              AllReduce.prepare(
                  rank.communicator(), rank.stream(), buffers.get(rank.rank()), options));
        }
        CountDownLatch running = new CountDownLatch(2);
        List<CompletableFuture<Void>> ends = new ArrayList<>();
        for (CompletableFuture<AllReduce> one : preparing) {
          AllReduce allReduce = one.get(10, TimeUnit.SECONDS);
          ends.add(CompletableFuture.runAsync(() -> runUntilItEnds(allReduce, running), start()));
        }
        assertThat(running.await(10, TimeUnit.SECONDS)).isTrue();
        LockSupport.parkNanos(round * 100_000L);
        close(what, ranks.ranks().get(0), preparing.get(0).join());
        for (CompletableFuture<Void> end : ends) {
          assertThatThrownBy(() -> end.get(5, TimeUnit.SECONDS))
              .cause()
              .isInstanceOf(FluxCclException.class);
        }
        buffers.forEach(DeviceBuffer::close);
      }
    }
  }

  private static Executor start() {
    return task -> {
      Thread thread = new Thread(task, "runs");
      thread.setDaemon(true);
      thread.start();
    };
  }

  private static void runUntilItEnds(AllReduce allReduce, CountDownLatch running) {
    try {
      for (int i = 0; !Thread.currentThread().isInterrupted(); i++) {
        allReduce.enqueue(i % 2 == 0 ? 100 : 1 << 14, DataType.INT32, ReduceOp.SUM);
        if (i % 4 == 3) {
          allReduce.completion().join();
          running.countDown();
        }
      }
    } finally {
      running.countDown();
    }
  }

  private static void close(What what, LocalRank rank, AllReduce allReduce) {
    switch (what) {
      case ALL_REDUCE -> allReduce.close();
      case COMMUNICATOR -> rank.communicator().close();
      case DEVICE -> rank.device().close();
      default -> rank.bootstrap().close();
    }
  }
}
