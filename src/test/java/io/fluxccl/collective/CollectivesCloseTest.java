// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

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
class CollectivesCloseTest {
  private static final int ROUNDS = 2;

  private enum What {
    COLLECTIVES,
    COMMUNICATOR,
    DEVICE,
    BOOTSTRAP
  }

  @ParameterizedTest
  @CsvSource({
    "SHM,COLLECTIVES", "SHM,COMMUNICATOR", "SHM,DEVICE", "SHM,BOOTSTRAP",
    "ETHERNET,COLLECTIVES", "ETHERNET,COMMUNICATOR", "ETHERNET,DEVICE", "ETHERNET,BOOTSTRAP"
  })
  void shouldFailEveryRunWithATypedErrorIfClosedMeanwhile(Transport transport, What what)
      throws Exception {
    for (int round = 0; round < ROUNDS; round++) {
      try (LocalRanks ranks = LocalRanks.of(2)) {
        List<CompletableFuture<Collectives>> preparing = new ArrayList<>();
        List<DeviceBuffer> buffers = new ArrayList<>();
        for (LocalRank rank : ranks.ranks()) {
          buffers.add(rank.device().allocate(1 << 16));
          CollectivesOptions options =
              CollectivesOptions.DEFAULT
                  .withTransport(transport)
                  .withThreads(2)
                  .withTimeout(Duration.ofSeconds(2))
                  .withSetupTimeout(Duration.ofSeconds(60));
          preparing.add(Collectives.create(rank.communicator(), options));
        }
        CountDownLatch running = new CountDownLatch(2);
        List<CompletableFuture<Void>> ends = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
          Collectives collectives = preparing.get(i).get(60, TimeUnit.SECONDS);
          DeviceBuffer buffer = buffers.get(i);
          ends.add(
              CompletableFuture.runAsync(
                  () -> runUntilItEnds(collectives, buffer, running), start()));
        }
        assertThat(running.await(60, TimeUnit.SECONDS)).isTrue();
        LockSupport.parkNanos(round * 100_000L);
        close(what, ranks.ranks().get(0), preparing.get(0).join());
        for (CompletableFuture<Void> end : ends) {
          fails(end, FluxCclException.class);
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

  private static void runUntilItEnds(
      Collectives collectives, DeviceBuffer buffer, CountDownLatch running) {
    try {
      CompletableFuture<Void> last = null;
      for (int i = 0; !Thread.currentThread().isInterrupted(); i++) {
        int count = i % 2 == 0 ? 100 : 1 << 14;
        last =
            collectives.allReduce(buffer, buffer, count, DataType.INT32, ReduceOp.SUM).toFuture();
        if (i % 4 == 3) {
          last.join();
          running.countDown();
        }
      }
    } finally {
      running.countDown();
    }
  }

  private static void close(What what, LocalRank rank, Collectives collectives) {
    switch (what) {
      case COLLECTIVES -> collectives.close();
      case COMMUNICATOR -> rank.communicator().close();
      case DEVICE -> rank.device().close();
      default -> rank.bootstrap().close();
    }
  }
}
