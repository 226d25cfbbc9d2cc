// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** Endpoints that exchange ready messages, as those of RDMA do. */
@Ranks(value = 2, leakCheck = false)
class ConnectorReadyTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  /** Connects, given the step that notifies the peer and completes when both ends are ready. */
  private interface Connecting {
    CompletableFuture<Connection> connect(Supplier<CompletableFuture<Void>> bothReady);
  }

  private static Communicator communicator(LocalRank rank, Connecting connecting) {
    Endpoint endpoint = mock(Endpoint.class);
    when(endpoint.wire()).thenReturn(new byte[1]);
    when(endpoint.needsReadyExchange()).thenReturn(true);
    when(endpoint.connect(any(), any(), any()))
        .thenAnswer(call -> connecting.connect(call.getArgument(2)));
    return MockTransports.communicator(rank, Transport.IB0, MockTransports.contextOf(endpoint));
  }

  private static Connecting ready(CompletableFuture<Void> isReady) {
    Connection connection = mock(Connection.class);
    when(connection.failed()).thenReturn(new CompletableFuture<>());
    return bothReady -> isReady.thenCompose(ready -> bothReady.get()).thenApply(met -> connection);
  }

  private static CompletableFuture<Connection> connect(Communicator communicator, int peer) {
    CompletableFuture<Connection> link =
        communicator.connectOnSetup(peer, 0, EndpointConfig.of(Transport.IB0));
    communicator.setup(LIMIT);
    return link;
  }

  @Test
  void shouldConnectWhenBothEndsAreReady(LocalRanks ranks) throws Exception {
    CompletableFuture<Void> late = new CompletableFuture<>();
    try (Communicator zero =
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
  void shouldFailAtOnceWithThePeersReasonIfItCannotConnect(LocalRanks ranks) {
    TransportFailure failure = new TransportFailure(0, "ibv_modify_qp(RTR): of a test");
    try (Communicator zero =
            communicator(ranks.ranks().get(0), ready(CompletableFuture.completedFuture(null)));
        Communicator one =
            communicator(
                ranks.ranks().get(1), bothReady -> CompletableFuture.failedFuture(failure))) {
      CompletableFuture<Connection> toOne = connect(zero, 1);
      connect(one, 0);
      FluxCclException reason =
          assertFails(
              toOne,
              RemoteFailure.class,
              "rank 1 could not do its part: ",
              "ibv_modify_qp(RTR): of a test");
      assertThat(reason.rank()).isEqualTo(1);
    }
  }
}
