// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A peer that sends arbitrary bytes during a set-up. The set-up must complete, or fail with an
 * error that names the peer and the operation; it must never hang.
 */
final class MalformedPeer {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private static final int RESERVED = 0x40000000;
  private static final int MEMORY = 1 << 24;

  private MalformedPeer() {}

  static void connect(Transport transport, byte[] message) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.ranks().get(1).bootstrap().send(0, RESERVED | 5, message, Deadline.after(TIMEOUT));
      Communicator honest = ranks.ranks().get(0).communicator();
      honest.connectOnSetup(1, 5, EndpointConfig.of(transport));
      assertTyped(honest.setup(Duration.ofMillis(300)), "connectOnSetup(rank=1, tag=5");
    }
  }

  static void receive(byte[] message) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      receive(ranks, message);
    }
  }

  static void receive(LocalRanks ranks, byte[] message) {
    ranks
        .ranks()
        .get(1)
        .bootstrap()
        .send(0, RESERVED | MEMORY | 5, message, Deadline.after(TIMEOUT));
    Communicator honest = ranks.ranks().get(0).communicator();
    NonblockingFuture<RegisteredMemory> memory = honest.recvMemoryOnSetup(1, 5);
    assertTyped(honest.setup(TIMEOUT), "recvMemoryOnSetup(rank=1, tag=5)");
    memory.thenAccept(RegisteredMemory::close);
  }

  private static void assertTyped(CompletableFuture<Void> setup, String operation) {
    Throwable failure = setup.handle((done, e) -> e).orTimeout(60, TimeUnit.SECONDS).join();
    if (failure != null) {
      FluxCclException typed = FluxCclException.from(failure);
      assertThat(typed).hasMessageContaining(operation).hasMessageContaining("rank 1");
      assertThat(typed.rank()).isIn(1, FluxCclException.NO_RANK);
    }
  }
}
