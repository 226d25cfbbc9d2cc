// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Failures to register buffers, and their effect on the job. */
@Timeout(180)
@OnRanks
class RegistrationFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  /** Large enough to have a segment of its own. */
  private static final long BYTES = 1 << 20;

  /** A family that throws on one rank when a buffer is registered. */
  private static final class Forgetful extends FakeFamily {
    private final boolean isBroken;

    Forgetful(boolean isBroken) {
      super("forgetful");
      this.isBroken = isBroken;
    }

    @Override
    public void registered(Registration registration) {
      if (isBroken) {
        throw new IllegalStateException("on purpose");
      }
    }
  }

  private static void refuseDifferentSizes(LocalRank rank, Collectives collectives, int times) {
    for (int i = 0; i < times; i++) {
      try (DeviceBuffer buffer = rank.device().allocate(BYTES * (1 + rank.rank()))) {
        fails(
            collectives.register(buffer),
            InvalidUsage.class,
            "rank " + rank.rank(),
            String.valueOf(BYTES),
            String.valueOf(2 * BYTES));
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldKeepNothingOfBuffersThatCannotBeRegistered(Transport transport, LocalRank rank)
      throws Exception {
    Collectives collectives = lane(rank, CollectivesOptions.DEFAULT.withTransport(transport));
    refuseDifferentSizes(rank, collectives, 1);
    rank.awaitAll();
    int before = ResourceLeaks.mappings().size();
    rank.awaitAll();
    refuseDifferentSizes(rank, collectives, 20);
    rank.awaitAll();
    Awaitility.await()
        .atMost(LONG)
        .untilAsserted(
            () -> assertThat(ResourceLeaks.mappings().size()).isLessThanOrEqualTo(before));
    rank.awaitAll();
    // The job stays usable.
    try (DeviceBuffer buffer = rank.device().allocate(BYTES);
        Registration registration = collectives.register(buffer).join()) {
      collectives.allReduce(buffer, INT32, SUM).block(LONG);
      rank.awaitAll();
    }
    assertThat(rank.communicator().failure()).isNull();
    rank.awaitAll();
  }

  @Test
  void shouldAbortWhenOnlySomeRanksLearnThatAllHaveRegistered(LocalRank rank) throws Exception {
    Collectives collectives = lane(rank, CollectivesOptions.DEFAULT);
    DeviceBuffer buffer = rank.device().allocate(BYTES);
    if (rank.rank() == 0) {
      fails(collectives.register(buffer), RemoteFailure.class);
    } else {
      rank.communicator()
          .exchange(
              0,
              "register",
              () -> Registrations.SharedBuffer.of(buffer).encode(),
              Deadline.after(LONG))
          .join();
      rank.communicator()
          .exchangeMemory(
              0,
              () -> rank.communicator().registerMemory(buffer, TransportFlags.of(Transport.SHM)),
              Deadline.after(LONG))
          .join();
      rank.bootstrap().closeAsync();
      return;
    }
    failsJob(rank, RemoteFailure.class);
  }

  @Test
  void shouldCloseTheRegistrationAndAbortIfAFamilyRejectsIt(LocalRank rank) throws Exception {
    boolean breaks = rank.rank() == 0;
    CollectivesOptions options = CollectivesOptions.DEFAULT.withFamily(new Forgetful(breaks));
    Collectives collectives = lane(rank, options);
    DeviceBuffer buffer = rank.device().allocate(BYTES);
    CompletableFuture<Registration> registering = collectives.register(buffer);
    if (breaks) {
      fails(registering, Throwable.class, "on purpose");
      BoundCall call =
          collectives.lane.registrations.bind(
              CollectiveCall.allReduce(buffer, buffer, 1, INT32, SUM));
      assertThat(call.isInputRegistered()).isFalse();
    }
    failsJob(rank, FluxCclException.class, "on purpose");
  }
}
