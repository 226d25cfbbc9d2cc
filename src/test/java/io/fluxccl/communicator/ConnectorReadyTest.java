// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportProvider;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** Endpoints that exchange ready messages, as those of RDMA do. */
class ConnectorReadyTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  /** An endpoint that connects once both sides are ready. */
  private abstract static class MeetingEnd implements Endpoint {
    @Override
    public byte[] wire() {
      return new byte[1];
    }

    @Override
    public boolean needsReadyExchange() {
      return true;
    }

    @Override
    public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
      throw new AssertionError("without a way to meet the peer");
    }

    @Override
    public void close() {}
  }

  private static Endpoint ready(CompletableFuture<Void> isReady) {
    return new MeetingEnd() {
      @Override
      public CompletableFuture<Connection> connect(
          byte[] remoteWire, Deadline deadline, Supplier<CompletableFuture<Void>> bothReady) {
        Connection connection = mock(Connection.class);
        when(connection.failed()).thenReturn(new CompletableFuture<>());
        return isReady.thenCompose(ready -> bothReady.get()).thenApply(met -> connection);
      }
    };
  }

  private static Endpoint failing() {
    return new MeetingEnd() {
      @Override
      public CompletableFuture<Connection> connect(
          byte[] remoteWire, Deadline deadline, Supplier<CompletableFuture<Void>> bothReady) {
        return CompletableFuture.failedFuture(
            new TransportFailure(0, "ibv_modify_qp(RTR): of a test"));
      }
    };
  }

  private static Communicator communicator(LocalRank rank, Endpoint endpoint) {
    TransportContext context = mock(TransportContext.class);
    when(context.createEndpoint(anyInt(), anyInt(), any())).thenReturn(endpoint);
    TransportProvider provider = mock(TransportProvider.class);
    when(provider.transports()).thenReturn(Set.of(Transport.IB0));
    when(provider.unavailableBecause(any())).thenReturn(Optional.empty());
    when(provider.open(any(), any())).thenReturn(context);
    return Communicator.create(
        rank.bootstrap(), rank.device(), CommunicatorOptions.DEFAULT, () -> List.of(provider));
  }

  private static CompletableFuture<Connection> connect(Communicator communicator, int peer) {
    CompletableFuture<Connection> link =
        communicator.connectOnSetup(peer, 0, EndpointConfig.of(Transport.IB0));
    communicator.setup(LIMIT);
    return link;
  }

  @Test
  void shouldConnectWhenBothEndsAreReady() throws Exception {
    CompletableFuture<Void> late = new CompletableFuture<>();
    try (LocalRanks ranks = LocalRanks.of(2);
        Communicator zero =
            communicator(ranks.ranks().get(0), ready(CompletableFuture.completedFuture(null)));
        Communicator one = communicator(ranks.ranks().get(1), ready(late))) {
      CompletableFuture<Connection> toOne = connect(zero, 1);
      CompletableFuture<Connection> toZero = connect(one, 0);
      assertThat(toOne).isNotDone();
      late.complete(null);
      assertThat(toOne.get(LIMIT.toSeconds(), TimeUnit.SECONDS)).isNotNull();
      assertThat(toZero.get(LIMIT.toSeconds(), TimeUnit.SECONDS)).isNotNull();
    }
  }

  @Test
  void shouldFailAtOnceWithThePeersReasonIfItCannotConnect() {
    try (LocalRanks ranks = LocalRanks.of(2);
        Communicator zero =
            communicator(ranks.ranks().get(0), ready(CompletableFuture.completedFuture(null)));
        Communicator one = communicator(ranks.ranks().get(1), failing())) {
      CompletableFuture<Connection> toOne = connect(zero, 1);
      connect(one, 0);
      FluxCclException reason =
          toOne
              .handle((done, failure) -> FluxCclException.from(failure))
              .orTimeout(LIMIT.toSeconds() / 2, TimeUnit.SECONDS)
              .join();
      assertThat(reason)
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("rank 1 could not do its part: ")
          .hasMessageContaining("ibv_modify_qp(RTR): of a test");
      assertThat(reason.rank()).isEqualTo(1);
    }
  }
}
