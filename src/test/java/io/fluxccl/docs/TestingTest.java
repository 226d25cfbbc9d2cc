// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.fail;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.group.Rank;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.testkit.FaultKind;
import io.fluxccl.testkit.FaultPlan;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.LocalRanksOptions;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.AgentInvoker;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

/** The code of docs/4-testing.md. */
@org.junit.jupiter.api.Timeout(60)
@Tag("jdk")
class TestingTest {
  @Test
  void shouldSumOnEveryRank() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            IntView x = rank.device().allocateInts(1);
            x.put(0, 14);
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              StepVerifier.create(collectives.allReduce(x, ReduceOp.SUM))
                  .expectComplete()
                  .verify(Duration.ofSeconds(30));
            }
            assertThat(x.get(0)).isEqualTo(42);
          });
    }
  }

  @Test
  void shouldUseTheNetworkWhenRanksAreOnTwoHosts() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            CollectiveCall sum =
                CollectiveCall.allReduce(x, x, 256, DataType.FLOAT32, ReduceOp.SUM);
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              assertThat(collectives.algorithmFor(sum)).isEqualTo("hierarchical");
            }
          });
    }
  }

  @Test
  void shouldRefuseSharedMemoryBetweenHosts() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1)) {
      ranks.run(
          rank -> {
            EndpointConfig shm = EndpointConfig.of(Transport.SHM);
            rank.communicator().connectOnSetup(1 - rank.rank(), 0, shm);
            assertThatThrownBy(rank.communicator().setup()::join)
                .hasCauseInstanceOf(TransportFailure.class)
                .hasMessageContaining("use ETHERNET");
          });
    }
  }

  @Test
  void shouldHandleEachTriggerOnce() {
    List<Long> handled = new ArrayList<>();
    try (HostDevice device = HostDevice.create();
        AbortFlag abort = new AbortFlag(device);
        Proxy proxy =
            new Proxy(
                new Fifo(device, 16),
                (first, second, position) -> {
                  handled.add(first);
                  return ProxyHandlerResult.CONTINUE;
                },
                ProxyOptions.defaults());
        AgentInvoker stepper = new AgentInvoker(error -> fail(error), null, proxy)) {
      FifoDeviceHandle fifo = proxy.fifo().deviceHandle(abort);
      stepper.start();
      fifo.push(1, 0);
      fifo.push(2, 0);
      assertThat(handled).isEmpty();
      assertThat(stepper.invoke()).isEqualTo(2);
      assertThat(handled).containsExactly(1L, 2L);
    }
  }

  @Test
  void shouldSeeACompletionOnlyWhenItIsStepped() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            BlockingQueue<Runnable> seen = new LinkedBlockingQueue<>();
            CollectivesOptions byHand =
                CollectivesOptions.DEFAULT.withScheduler(Schedulers.fromExecutor(seen::add));
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator(), byHand).join();
            CompletableFuture<Void> sum =
                collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM).toFuture();
            Runnable completion = seen.poll(30, TimeUnit.SECONDS); // the operation is done
            assertThat(sum).isNotDone();
            completion.run();
            assertThat(sum).isCompleted();
          });
    }
  }

  @Test
  void shouldSignalThePeerOnlyWhenTheProxyIsStepped() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1)) {
      ranks.run(
          rank -> {
            KernelsAndChannelsTest.Ends ends =
                KernelsAndChannelsTest.Ends.of(
                    rank.communicator(), 1 - rank.rank(), Transport.ETHERNET);
            ProxyService service = new ProxyService(rank.communicator());
            int semaphore = service.buildAndAddSemaphore(rank.communicator(), ends.connection());
            rank.communicator().setup().join();
            ProxyChannelDeviceHandle channel =
                service
                    .proxyChannel(
                        semaphore, service.addMemory(ends.theirs()), service.addMemory(ends.mine()))
                    .deviceHandle();
            try (AgentInvoker stepper =
                new AgentInvoker(error -> fail(error), null, service.proxy())) {
              stepper.start();
              channel.putWithSignal(0, 0, 64);
              assertThat(channel.poll()).isFalse();
              rank.awaitAll();
              assertThat(stepper.invoke()).isPositive();
              assertThat(channel.await()).isTrue();
            }
            rank.awaitAll();
            service.close();
          });
    }
  }

  @Test
  void shouldNameTheRankThatDoesNotTakePart() {
    CollectivesOptions impatient =
        CollectivesOptions.DEFAULT
            .withTimeout(Duration.ofSeconds(1))
            .withSetupTimeout(Duration.ofSeconds(30));
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator(), impatient).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              StepVerifier.create(collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                  .expectErrorSatisfies(
                      e -> {
                        assertThat(e).isInstanceOf(Timeout.class);
                        assertThat(((Timeout) e).rank()).isEqualTo(1);
                      })
                  .verify(Duration.ofSeconds(30));
            }
          });
    }
  }

  @Test
  void shouldTimeOutInVirtualTime() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator()).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              StepVerifier.withVirtualTime(
                      () -> collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                  .expectSubscription()
                  .expectNoEvent(Duration.ofSeconds(29))
                  .thenAwait(Duration.ofSeconds(1))
                  .expectError(Timeout.class)
                  .verify(Duration.ofSeconds(30));
            }
            assertThat(rank.communicator().failed().join()).isInstanceOf(Timeout.class);
          });
    }
  }

  @Test
  void shouldSeeThatARankHasBecomeSilent() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      Rank first = ranks.ranks().get(0);
      StepVerifier.withVirtualTime(() -> first.bootstrap().silence())
          .expectNext(OptionalInt.empty())
          .then(() -> ranks.ranks().get(1).stopAnswering(Duration.ofMinutes(1)))
          .thenAwait(Duration.ofSeconds(1))
          .expectNext(OptionalInt.of(1))
          .thenAwait(Duration.ofMinutes(1))
          .thenCancel()
          .verify(Duration.ofSeconds(30));
      assertThat(first.failed().join()).isInstanceOf(Timeout.class); // rank 1 has answered no ...
    }
  }

  @Test
  void shouldCompleteOnAllRanksIfOneCancels() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator()).join();
            Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
            if (rank.rank() == 0) {
              sum.subscribe().dispose();
            }
            rank.awaitAll(); // rank 1 calls when rank 0 has cancelled already
            if (rank.rank() == 1) {
              StepVerifier.create(sum).expectComplete().verify(Duration.ofSeconds(30));
            }
            StepVerifier.create(collectives.barrier())
                .expectComplete()
                .verify(Duration.ofSeconds(30));
            assertThat(rank.communicator().failure()).isNull();
          });
    }
  }

  @Test
  void shouldEndAPendingRunWhenARankDies() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator()).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              StepVerifier.create(collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                  .expectErrorMatches(e -> ((FluxCclException) e).rank() == 1)
                  .verify(Duration.ofSeconds(30));
            } else {
              rank.bootstrap().abort(new RemoteFailure(1, "rank 1 plays dead"));
            }
          });
    }
  }

  @Test
  void shouldSumOverANetworkWithFaults() {
    FaultPlan plan = FaultPlan.seeded(42, 3, FaultKind.CUT, FaultKind.CORRUPT, FaultKind.DROP);
    LocalRanksOptions options =
        LocalRanksOptions.DEFAULT
            .withCollectives(CollectivesOptions.DEFAULT.withChecksums(true))
            .withFaults(plan);
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1, options)) {
      ranks.run(
          rank -> {
            try (IntView x = rank.device().allocateInts(1)) {
              x.put(0, 14);
              rank.collectives().allReduce(x, ReduceOp.SUM).block(Duration.ofSeconds(30));
              assertThat(x.get(0)).isEqualTo(42);
            }
          });
    }
  }
}
