// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.RemoteFailure;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

@Ranks(value = 2, leakCheck = false)
class ConnectorTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final EndpointConfig SHM = EndpointConfig.of(Transport.SHM);

  @Test
  void shouldFailOnBothRanksIfAnEndpointThrowsAnError(LocalRanks ranks) {
    try (Communicator broken = broken(ranks, new InternalError("on purpose"))) {
      CompletableFuture<Void> ours = connect(broken, 1);
      CompletableFuture<Void> theirs = connect(ranks.ranks().get(1).communicator(), 0);
      assertFails(ours, Aborted.class, "on purpose");
      assertFails(theirs, RemoteFailure.class, "rank 0 could not do its part", "on purpose");
    }
  }

  @Test
  void shouldNameTheOperationIfTheDeviceRefusesItsEndpoint(LocalRanks ranks) {
    DeviceFailure cause = new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "on purpose");
    try (Communicator broken = broken(ranks, cause)) {
      DeviceFailure failure =
          (DeviceFailure) assertFails(connect(broken, 1), DeviceFailure.class, "on purpose");
      assertThat(failure).hasMessage("connectOnSetup(rank=1, tag=5, SHM): on purpose");
      assertThat(failure.status()).isEqualTo(2);
      assertThat(failure.statusName()).isEqualTo("CUDA_ERROR_OUT_OF_MEMORY");
    }
  }

  /** Returns a communicator of rank 0 that can't create endpoints. */
  private static Communicator broken(LocalRanks ranks, Throwable cause) {
    TransportContext context = mock(TransportContext.class);
    when(context.createEndpoint(anyInt(), anyInt(), any())).thenThrow(cause);
    return MockTransports.communicator(ranks.ranks().get(0), Transport.SHM, context);
  }

  private static CompletableFuture<Void> connect(Communicator communicator, int peer) {
    communicator.connectOnSetup(peer, 5, SHM);
    return communicator.setup(LONG);
  }
}
