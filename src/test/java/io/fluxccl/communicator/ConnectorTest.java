// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.RemoteFailure;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

@Ranks(value = 2, leakCheck = false)
class ConnectorTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final EndpointConfig SHM = EndpointConfig.of(Transport.SHM);

  @Test
  void shouldFailOnBothRanksIfAnEndpointThrowsAnError(LocalRanks ranks) {
    CompletableFuture<Void> ours =
        connect(
            ranks,
            () -> {
              throw new InternalError("on purpose");
            });
    ranks.ranks().get(1).communicator().connectOnSetup(0, 5, SHM);
    CompletableFuture<Void> theirs = ranks.ranks().get(1).communicator().setup(LONG);
    assertThat(ours)
        .failsWithin(LONG)
        .withThrowableThat()
        .withCauseInstanceOf(Aborted.class)
        .withMessageContaining("on purpose");
    assertThat(theirs)
        .failsWithin(LONG)
        .withThrowableThat()
        .withCauseInstanceOf(RemoteFailure.class)
        .withMessageContaining("rank 0 could not do its part")
        .withMessageContaining("on purpose");
  }

  @Test
  void shouldNameTheOperationIfTheDeviceRefusesItsEndpoint(LocalRanks ranks) {
    CompletableFuture<Void> ours =
        connect(
            ranks,
            () -> {
              throw new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "on purpose");
            });
    assertThat(ours)
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .withMessage("connectOnSetup(rank=1, tag=5, SHM): on purpose")
        .isInstanceOfSatisfying(
            DeviceFailure.class,
            failure -> {
              assertThat(failure.status()).isEqualTo(2);
              assertThat(failure.statusName()).isEqualTo("CUDA_ERROR_OUT_OF_MEMORY");
            });
  }

  /** Rank 0 begins to connect to rank 1 with an endpoint of its own. */
  private static CompletableFuture<Void> connect(LocalRanks ranks, Supplier<Endpoint> endpoint) {
    Connector connector =
        new Connector(
            new SetupMessages(ranks.ranks().get(0).bootstrap(), Runnable::run),
            endpoint,
            connection -> {},
            1,
            5,
            SHM);
    SetupQueue setups = new SetupQueue(() -> null, CompletableFuture::completedFuture);
    setups.add(connector);
    return setups.run(Deadline.after(LONG));
  }
}
