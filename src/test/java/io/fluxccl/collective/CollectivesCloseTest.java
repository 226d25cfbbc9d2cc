// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Closing in any order while runs are enqueued and in flight. */
@OnRanks
class CollectivesCloseTest {
  private final List<CompletableFuture<Void>> running =
      List.of(new CompletableFuture<>(), new CompletableFuture<>());

  private enum What {
    COLLECTIVES((rank, collectives) -> collectives.close()),
    COMMUNICATOR((rank, collectives) -> rank.communicator().close()),
    DEVICE((rank, collectives) -> rank.device().close()),
    BOOTSTRAP((rank, collectives) -> rank.bootstrap().close());

    private final BiConsumer<LocalRank, Collectives> close;

    What(BiConsumer<LocalRank, Collectives> close) {
      this.close = close;
    }
  }

  static Stream<Arguments> closes() {
    return Stream.of(Transport.SHM, Transport.ETHERNET)
        .flatMap(
            transport ->
                Stream.of(What.values())
                    .flatMap(
                        what ->
                            Stream.of(0, 100_000)
                                .map(delayNs -> Arguments.of(transport, what, delayNs))));
  }

  @ParameterizedTest
  @MethodSource("closes")
  void shouldFailEveryRunWithATypedErrorIfClosedMeanwhile(
      Transport transport, What what, int delayNs, LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTransport(transport)
            .withThreads(2)
            .withTimeout(Duration.ofSeconds(2))
            .withSetupTimeout(Duration.ofSeconds(60));
    Collectives collectives = lane(rank, options);
    DeviceBuffer buffer = rank.device().allocate(1 << 16);
    if (rank.rank() == 0) {
      running
          .get(0)
          .thenCombine(running.get(1), (one, other) -> null)
          .thenRunAsync(
              () -> {
                LockSupport.parkNanos(delayNs);
                what.close.accept(rank, collectives);
              },
              BlockingTasks.EXECUTOR);
    }
    CompletableFuture<Void> last;
    do {
      last = null;
      for (int count : new int[] {100, 1 << 14, 100, 1 << 14}) {
        last = collectives.allReduce(buffer, buffer, count, INT32, SUM).toFuture();
      }
      last.handle((done, failure) -> null).join();
      running.get(rank.rank()).complete(null);
    } while (!last.isCompletedExceptionally());
    fails(last, FluxCclException.class);
  }
}
