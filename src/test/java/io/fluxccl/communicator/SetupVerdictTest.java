// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A step of the set-up fails because its peer has died, before the bootstrap reports the death. */
@Ranks(value = 2, leakCheck = false)
class SetupVerdictTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int NOTICE_MILLIS = 5;

  private enum Step {
    CONNECT(Step::connect),
    RECEIVE_MEMORY(Step::receiveMemory),
    EXCHANGE_MEMORY(Step::exchangeMemory);

    private final Function<Pair, CompletableFuture<?>> begin;

    Step(Function<Pair, CompletableFuture<?>> begin) {
      this.begin = begin;
    }

    private static CompletableFuture<?> connect(Pair pair) {
      pair.peer.connectOnSetup(1, 0, EndpointConfig.of(Transport.SHM));
      pair.peer.setup(LONG);
      CompletableFuture<Connection> link =
          pair.own.connectOnSetup(0, 0, EndpointConfig.of(Transport.SHM));
      pair.own.setup(LONG);
      return link;
    }

    private static CompletableFuture<?> receiveMemory(Pair pair) {
      pair.peer.sendMemoryOnSetup(memoryOf(pair.peer), 1, 0);
      pair.peer.setup(LONG);
      CompletableFuture<RegisteredMemory> memory = pair.own.recvMemoryOnSetup(0, 0);
      pair.own.setup(LONG);
      return memory;
    }

    private static CompletableFuture<?> exchangeMemory(Pair pair) {
      pair.peer.exchangeMemory(0, () -> memoryOf(pair.peer), Deadline.after(LONG));
      return pair.own.exchangeMemory(0, () -> memoryOf(pair.own), Deadline.after(LONG));
    }

    private static RegisteredMemory memoryOf(Communicator communicator) {
      return communicator.registerMemory(
          communicator.device().allocate(64), TransportFlags.of(Transport.SHM));
    }
  }

  private record Pair(Communicator peer, Communicator own) {}

  @ParameterizedTest
  @EnumSource
  void shouldNameTheDeathThatIsReportedAMomentLater(Step step, LocalRanks ranks) {
    LocalRank dead = ranks.ranks().get(0);
    Runnable report = () -> dead.bootstrap().abort(new RemoteFailure(0, "rank 0 died"));
    Runnable reportSoon =
        () ->
            CompletableFuture.delayedExecutor(NOTICE_MILLIS, TimeUnit.MILLISECONDS).execute(report);
    assertThat(failureOf(step, ranks.ranks(), reportSoon))
        .isInstanceOf(RemoteFailure.class)
        .hasMessage("rank 0 died")
        .extracting(FluxCclException::rank)
        .isEqualTo(0);
  }

  @ParameterizedTest
  @EnumSource
  void shouldNameTheTransportFailureOfAPeerThatLives(Step step, LocalRanks ranks) {
    assertThat(failureOf(step, ranks.ranks(), () -> {}))
        .isInstanceOf(TransportFailure.class)
        .hasMessageEndingWith("rank 0 can't be reached")
        .extracting(FluxCclException::rank)
        .isEqualTo(0);
  }

  private static FluxCclException failureOf(Step step, List<LocalRank> ranks, Runnable onFailure) {
    LocalRank rank = ranks.get(1);
    try (Communicator own = MockTransports.communicator(rank, Transport.SHM, failing(onFailure))) {
      CompletableFuture<?> result = step.begin.apply(new Pair(ranks.get(0).communicator(), own));
      return result
          .handle((done, failure) -> FluxCclException.from(failure))
          .orTimeout(LONG.toSeconds(), TimeUnit.SECONDS)
          .join();
    }
  }

  /** Returns a transport that cannot open any shared memory of a peer. */
  private static TransportContext failing(Runnable onFailure) {
    TransportFailure reason = new TransportFailure(0, "rank 0 can't be reached");
    Endpoint endpoint = mock(Endpoint.class);
    when(endpoint.wire()).thenReturn(new byte[0]);
    when(endpoint.connect(any(), any()))
        .thenAnswer(
            call -> {
              onFailure.run();
              return CompletableFuture.failedFuture(reason);
            });
    MemoryHandle handle = mock(MemoryHandle.class);
    when(handle.wire()).thenReturn(new byte[0]);
    TransportContext context = MockTransports.contextOf(endpoint);
    when(context.register(any())).thenReturn(handle);
    when(context.open(any(), any()))
        .thenAnswer(
            call -> {
              onFailure.run();
              throw reason;
            });
    return context;
  }
}
