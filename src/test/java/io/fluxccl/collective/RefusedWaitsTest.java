// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.Deadline;
import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Waits on threads of the library, which would block the work that they wait for. */
@Timeout(120)
@OnRanks
class RefusedWaitsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final EndpointConfig SHM = EndpointConfig.of(Transport.SHM);

  /** Operations that wait for the other rank. */
  private enum Pending {
    REGISTER((rank, on) -> on.register(rank.device().allocate(64))),
    LANE((rank, on) -> on.lane("other")),
    CREATE(
        (rank, on) ->
            Collectives.create(rank.communicator(), CollectivesOptions.DEFAULT.withTag(1000))),
    SETUP(
        (rank, on) -> {
          rank.communicator().connectOnSetup(1 - rank.rank(), 7, SHM);
          return rank.communicator().setup();
        }),
    CONNECT_ON_SETUP(
        (rank, on) -> {
          var connection = rank.communicator().connectOnSetup(1 - rank.rank(), 8, SHM);
          rank.communicator().setup();
          return connection;
        }),
    EXCHANGE((rank, on) -> rank.communicator().exchange(5, new byte[1], Deadline.after(LONG))),
    RENDEZVOUS(
        (rank, on) -> rank.communicator().rendezvous(1 - rank.rank(), 5, Deadline.after(LONG))),
    BARRIER((rank, on) -> rank.bootstrap().barrier(Deadline.after(LONG))),
    ALL_GATHER((rank, on) -> rank.bootstrap().allGather(new byte[1], Deadline.after(LONG))),
    FAILED((rank, on) -> rank.communicator().failed());

    private final BiFunction<LocalRank, Collectives, CompletableFuture<?>> start;

    Pending(BiFunction<LocalRank, Collectives, CompletableFuture<?>> start) {
      this.start = start;
    }
  }

  /** Returns the exception of each way to wait for a future on a thread of the library. */
  private static List<Throwable> waitOn(CompletableFuture<?> pending) throws Exception {
    List<Throwable> refused = new ArrayList<>();
    CompletableFuture<?> derived = pending.thenApply(done -> done).copy();
    CountDownLatch done = new CountDownLatch(1);
    Thread thread =
        new NonblockingThread(
            () -> {
              for (CompletableFuture<?> each : Arrays.asList(pending, derived)) {
                refused.add(catchThrowable(each::join));
                refused.add(catchThrowable(each::get));
                refused.add(catchThrowable(() -> each.get(1, TimeUnit.HOURS)));
              }
              done.countDown();
            },
            "fluxccl-test");
    thread.start();
    assertThat(done.await(60, TimeUnit.SECONDS)).as("it did not wait").isTrue();
    return refused;
  }

  @ParameterizedTest
  @EnumSource
  void shouldRefuseToWaitForAPeerOnAThreadOfTheLibrary(
      Pending operation, LocalRank rank, Collectives collectives) throws Exception {
    CompletableFuture<?> pending = null;
    if (rank.rank() == 0) {
      pending = operation.start.apply(rank, collectives);
      assertThat(waitOn(pending))
          .hasSize(6)
          .allSatisfy(
              failure ->
                  assertThat(failure)
                      .isInstanceOf(IllegalStateException.class)
                      .hasMessageContaining("blocking")
                      .hasMessageContaining("fluxccl-test"));
    }
    rank.awaitAll();
    if (rank.rank() == 1) {
      pending = operation.start.apply(rank, collectives);
    }
    if (operation != Pending.FAILED) {
      // Any other thread may wait, and the library's may ask for what is there.
      pending.get(60, TimeUnit.SECONDS);
      assertThat(pending.join()).isEqualTo(pending.getNow(null));
    }
  }

  @Test
  void shouldRefuseToWaitForAStreamOnTheThreadThatCompletesIt() {
    CountDownLatch gate = new CountDownLatch(1);
    HostKernel hold =
        HostKernel.of(
            "hold",
            (thread, args) -> {
              try {
                gate.await(60, TimeUnit.SECONDS);
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
            });
    try (LocalRanks ranks = LocalRanks.of(1);
        DeviceBuffer x = ranks.ranks().get(0).device().allocate(64)) {
      DeviceStream stream = ranks.ranks().get(0).stream();
      stream.launch(hold, 1, 1, KernelArgs.of(x));
      CompletableFuture<Throwable> outcome =
          stream
              .completion()
              .thenApply(
                  done ->
                      catchThrowable(
                          () -> stream.launch(hold, 1, 1, KernelArgs.NONE).completion().join()));
      gate.countDown();
      assertThat(outcome).succeedsWithin(LONG).isInstanceOf(IllegalStateException.class);
    }
  }
}
