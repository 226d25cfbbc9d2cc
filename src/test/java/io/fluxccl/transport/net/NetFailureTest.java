// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Failures that a vendor's plugin causes, or a peer of NET that is malformed. */
@RequiresNativeLibrary
@Timeout(120)
class NetFailureTest {
  @TempDir private static Path folder;
  @AutoClose private NetRanks ranks;

  @BeforeEach
  void open() throws Exception {
    ranks = Network.PLUGIN_V11.open(folder);
  }

  /** Replaces the ranks by those of a plugin with faults. */
  private void open(String... faults) throws Exception {
    ranks.close();
    Path library = TestNet.library(folder, 11, faults);
    ranks = new NetRanks(new NetChoice(null, library.toString(), null));
  }

  @Test
  void shouldNameRankAndOperationWhenThePluginFailsInTheMiddle() throws Exception {
    open("FAIL_AFTER=40", "FAIL_CODE=6");
    Transfer transfer = ranks.transfer(0, 64 << 20).write().write();
    CompletableFuture<Void> flush = transfer.flushing();
    FluxCclException failure = get(transfer.link().failed());
    assertFailureOf(
        1,
        TransportFailure.class,
        failure,
        "the NET connection of rank 0 to rank 1 (tag 0)",
        "remote error");
    assertThat(failureOf(flush)).isSameAs(failure);
    assertThatThrownBy(() -> transfer.link().beginFlush()).isSameAs(failure);
  }

  @Test
  void shouldFailIfThePluginReportsNoSizes() throws Exception {
    open("NO_SIZES=1");
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    // The end that notices first disconnects; the other then waits for it until its deadline.
    Deadline deadline = Deadline.after(Duration.ofSeconds(2));
    CompletableFuture<Connection> toB = a.connect(b.wire(), deadline);
    CompletableFuture<Connection> toA = b.connect(a.wire(), deadline);
    assertThat(failureOf(toB)).isNotNull();
    assertThat(failureOf(toA)).isNotNull();
  }

  @Test
  void shouldRefuseAPeerWithoutItsToken() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    byte[] wire = b.wire();
    int token = wire.length - 3 * NetPlugin.HANDLE_BYTES - 32;
    wire[token + 5] ^= 1;
    // Depending on the order of the two ends, this end connects and then fails, or waits until
    // its deadline.
    CompletableFuture<Connection> toB = a.connect(wire, Deadline.after(Duration.ofSeconds(10)));
    assertFailure(
        TransportFailure.class, failureOf(b.connect(a.wire(), deadline())), "without its token");
    CompletableFuture<FluxCclException> ended =
        toB.thenCompose(Connection::failed).exceptionally(FluxCclException::from);
    assertThat(get(ended).rank()).isEqualTo(1);
  }

  @Test
  void shouldRefuseAPeerOverAnotherNetworkOrWithAMalformedEnd() {
    Endpoint a = ranks.endpoint(0, 1, 0);
    EndpointWire peer = EndpointWire.decode(ranks.endpoint(1, 0, 0).wire(), 1);
    EndpointWire other = new EndpointWire("ofi", 1, 0, false, peer.address());
    assertFailure(
        TransportFailure.class,
        failureOf(a.connect(other.encode(), deadline())),
        "over the network ofi");
    byte[] wire = peer.encode();
    for (int length = 0; length < wire.length; length += 7) {
      byte[] cut = Arrays.copyOf(wire, length);
      CompletableFuture<Connection> refused = ranks.endpoint(0, 1, 0).connect(cut, deadline());
      assertThat(failureOf(refused)).isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldRefuseMalformedMemoryHandles() {
    RegisteredMemory owned = ranks.memory(1, 64);
    byte[] wire = ranks.wire(owned);
    for (int place : new int[] {0, 4, 6, 16, 20}) {
      byte[] wrong = wire.clone();
      wrong[place] ^= 0x55;
      assertThrows(TransportFailure.class, () -> ranks.seenByPeer(owned, wrong, 64), "rank 1");
    }
    byte[] cut = Arrays.copyOf(wire, wire.length - 1);
    assertThatThrownBy(() -> ranks.seenByPeer(owned, cut, 64)).isInstanceOf(TransportFailure.class);
  }
}
