// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Deadline;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.CancelledHandOut;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connects that end when their connections are handed out. */
@Timeout(120)
class NetHandOutTest {
  private final FaultyNet net = new FaultyNet();

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    try (NetRanks ranks = new NetRanks(net)) {
      CancelledHandOut.assertClosed(ranks, () -> ranks.context(0).openConnections() == 0);
      await().until(() -> net.openEnds() == 0);
    }
    assertThat(net.closed).isTrue();
  }

  @Test
  void shouldCloseAConnectionThatIsAcceptedAtTheDeadline() throws Exception {
    try (NetRanks ranks = new NetRanks(net)) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      Endpoint b = ranks.endpoint(1, 0, 0);
      Deadline deadline = Deadline.after(Duration.ofSeconds(2));
      CountDownLatch handedOut = new CountDownLatch(1);
      net.beforeAccepted =
          () -> {
            while (!deadline.expired()) {
              Thread.onSpinWait();
            }
            handedOut.countDown();
          };
      CompletableFuture<Connection> connected = a.connect(b.wire(), deadline);
      // A client connects, but sends no hello.
      NetHandle listener = new NetHandle(EndpointWire.decode(a.wire(), 0).handles()[0]);
      AtomicReference<NetSendComm> silent = new AtomicReference<>();
      await()
          .until(
              () -> {
                silent.set(net.connect(0, listener));
                return silent.get() != null;
              });
      handedOut.await();
      assertThatThrownBy(() -> get(connected)).hasCauseInstanceOf(io.fluxccl.Timeout.class);
      silent.get().close();
      await().until(() -> net.openEnds() == 0);
      await().until(() -> ranks.context(0).openConnections() == 0);
    }
  }
}
