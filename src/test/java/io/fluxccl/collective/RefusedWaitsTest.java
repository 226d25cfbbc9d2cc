// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Waits on threads of the library, which would block the work that they wait for. */
@Timeout(120)
class RefusedWaitsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static final Map<String, BiFunction<LocalRank, Collectives, CompletableFuture<?>>>
      PENDING = new LinkedHashMap<>();

  static {
    PENDING.put("register", (rank, on) -> on.register(rank.device().allocate(64)));
    PENDING.put("lane", (rank, on) -> on.lane("other"));
    PENDING.put(
        "create",
        (rank, on) ->
            Collectives.create(rank.communicator(), CollectivesOptions.DEFAULT.withTag(1000)));
    PENDING.put(
        "setup",
        (rank, on) -> {
          rank.communicator().connectOnSetup(1 - rank.rank(), 7, EndpointConfig.of(Transport.SHM));
          return rank.communicator().setup();
        });
    PENDING.put(
        "connectOnSetup",
        (rank, on) -> {
          CompletableFuture<?> connection =
              rank.communicator()
                  .connectOnSetup(1 - rank.rank(), 8, EndpointConfig.of(Transport.SHM));
          rank.communicator().setup();
          return connection;
        });
    PENDING.put(
        "exchange",
        (rank, on) -> rank.communicator().exchange(5, new byte[1], Deadline.after(LONG)));
    PENDING.put(
        "rendezvous",
        (rank, on) -> rank.communicator().rendezvous(1 - rank.rank(), 5, Deadline.after(LONG)));
    PENDING.put("barrier", (rank, on) -> rank.bootstrap().barrier(Deadline.after(LONG)));
    PENDING.put(
        "allGather", (rank, on) -> rank.bootstrap().allGather(new byte[1], Deadline.after(LONG)));
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
                refused.add(outcome(each::join));
                refused.add(outcome(each::get));
                refused.add(outcome(() -> each.get(1, TimeUnit.HOURS)));
              }
              done.countDown();
            },
            "fluxccl-test");
    thread.start();
    assertThat(done.await(60, TimeUnit.SECONDS)).as("it did not wait").isTrue();
    return refused;
  }

  private interface Wait {
    Object end() throws Exception;
  }

  private static Throwable outcome(Wait wait) {
    try {
      return new AssertionError("there is a result: " + wait.end());
    } catch (Throwable e) {
      return e;
    }
  }

  private static void assertRefused(String what, CompletableFuture<?> pending) throws Exception {
    assertThat(waitOn(pending))
        .as(what)
        .hasSize(6)
        .allSatisfy(
            failure ->
                assertThat(failure)
                    .isInstanceOf(IllegalStateException.class)
                    .hasMessageContaining("blocking")
                    .hasMessageContaining("fluxccl-test"));
  }

  @Test
  void shouldRefuseToWaitForAPeerOnAThreadOfTheLibrary() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            Collectives collectives = rank.collectives();
            for (var each : PENDING.entrySet()) {
              CompletableFuture<?> pending = null;
              if (rank.rank() == 0) {
                pending = each.getValue().apply(rank, collectives);
                assertRefused(each.getKey(), pending);
              }
              rank.awaitAll();
              if (rank.rank() == 1) {
                pending = each.getValue().apply(rank, collectives);
              }
              // Any other thread may wait, and the library's may ask for what is there.
              pending.get(60, TimeUnit.SECONDS);
              assertThat(pending.join()).isEqualTo(pending.getNow(null));
            }
            assertRefused("failed", rank.communicator().failed());
            collectives.close();
          });
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
                      outcome(
                          () -> stream.launch(hold, 1, 1, KernelArgs.NONE).completion().join()));
      gate.countDown();
      assertThat(outcome).succeedsWithin(LONG).isInstanceOf(IllegalStateException.class);
    }
  }
}
