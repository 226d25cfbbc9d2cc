// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A network that throws unexpected errors. */
@Timeout(120)
class NetErrorTest {
  private static final Duration MOMENT = Duration.ofSeconds(5);

  private final FaultyNet net = new FaultyNet();

  /** Connects two ends, at least the first of which must fail with this reason. */
  private void assertNotConnected(NetRanks ranks, String why) throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 9);
    Endpoint b = ranks.endpoint(1, 0, 9);
    CompletableFuture<Connection> toB = a.connect(b.wire(), Deadline.after(MOMENT));
    CompletableFuture<Connection> toA = b.connect(a.wire(), Deadline.after(MOMENT));
    assertThatThrownBy(() -> get(toB))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("was not connected")
        .hasMessageContaining(why);
    toA.exceptionally(error -> null).thenAccept(end -> b.close());
  }

  @Test
  void shouldServeOthersWhenRegisteringRunsOutOfMemory() throws Exception {
    try (NetRanks ranks = new NetRanks(net)) {
      Connection living = ranks.connect(0).get(0);
      net.error = new OutOfMemoryError("Cannot reserve 256 bytes of direct buffer memory");
      net.refusedSize = (long) net.maxRequests() * Long.BYTES;
      assertNotConnected(ranks, "Cannot reserve 256 bytes");
      get(living.flush(LIMIT));
      net.refusedSize = 0;
      get(ranks.connect(1).get(0).flush(LIMIT));
    }
    assertThat(net.closed).isTrue();
  }

  @Test
  void shouldReportTheCauseIfTheReceivingEndCannotRegister() throws Exception {
    try (NetRanks ranks = new NetRanks(net)) {
      net.refusedReceivingSize = (long) net.maxRequests() * ControlMessage.MAX_BYTES;
      assertNotConnected(ranks, "the memory can't be registered");
    }
  }
}
