// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginContract;
import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.testing.Rounds;
import io.fluxccl.tls.Certificates;
import io.fluxccl.tls.Tls;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The network over TLS: all of the contract, and which certificates are accepted. */
@Timeout(120)
class TcpTlsTest extends NetPluginContract {
  private static final TcpOptions SECURE =
      TcpNetPluginTest.OPTIONS.withTls(Optional.of(Tls.selfSigned()));

  @TempDir Path folder;

  private NetPlugin network(TcpOptions options) {
    return closing(new TcpNetPlugin(options));
  }

  @Override
  protected NetPlugin network(Duration requests, Duration connects) {
    return network(SECURE.withTimeouts(requests, connects));
  }

  @Override
  protected NetPlugin network(TableOptions table) {
    return network(SECURE.withTable(table));
  }

  @Override
  protected List<ConnectionState> connections(NetPlugin network) {
    return ((TcpNetPlugin) network).connections();
  }

  @Override
  protected String address() {
    return "127.0.0.1:";
  }

  @Override
  protected int[] sizes() {
    return TcpNetPluginTest.SIZES;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldMoveConsecutiveMessagesOfAllSizesOverTls(int streams) {
    int total = Arrays.stream(sizes()).sum();
    NetPlugin network = network(SECURE.withStreams(streams, 2));
    try (MessageLink link = new MessageLink(network, network, total)) {
      link.moveAll(sizes(), Rounds.of(3, 20)); // slow without the second compiler
    }
  }

  @Test
  void shouldRefuseAListenerIfItsCertificateDiffersFromItsHandle() {
    NetPlugin network = network(SECURE);
    try (NetListenComm listener = network.listen(0)) {
      byte[] handle = listener.handle();
      handle[handle.length - 1] ^= 1;
      assertThatThrownBy(() -> connect(network, handle, listener))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("another certificate");
    }
  }

  @Test
  void shouldFailIfOnlyOneSideUsesTls() {
    NetPlugin secure = network(SECURE);
    NetPlugin open = network(TcpNetPluginTest.OPTIONS);
    try (NetListenComm behindTls = secure.listen(0);
        NetListenComm inTheOpen = open.listen(0)) {
      assertThatThrownBy(() -> connect(open, behindTls.handle(), behindTls))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("FLUXCCL_TLS");
      assertThatThrownBy(() -> connect(secure, inTheOpen.handle(), inTheOpen))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("FLUXCCL_TLS");
    }
  }

  @Test
  void shouldDropAConnectionThatDoesNotUseTls() throws Exception {
    NetPlugin network = network(SECURE);
    try (NetListenComm listener = network.listen(0);
        Socket stranger = new Socket()) {
      stranger.connect(WireDescriptor.readHandle(ByteBuffer.wrap(listener.handle())).address());
      stranger.getOutputStream().write(new byte[WireDescriptor.HELLO_LENGTH]);
      stranger.setSoTimeout(1);
      for (boolean open = true; open; ) {
        assertThat(listener.accept()).isNull();
        try {
          open = stranger.getInputStream().read() >= 0;
        } catch (java.net.SocketTimeoutException e) {
          continue;
        }
      }
      try (MessageLink link = new MessageLink(network, network, listener, 100)) {
        MessageLink.await(link.irecv(0, 100), link.isend(0, 100));
      }
    }
  }

  @Test
  void shouldAcceptOnlyCertificatesOfTheAuthority() throws Exception {
    Certificates made = new Certificates(folder);
    NetPlugin one = network(SECURE.withTls(Optional.of(made.of("one", "EC"))));
    NetPlugin other = network(SECURE.withTls(Optional.of(made.of("other", "RSA"))));
    try (MessageLink link = new MessageLink(one, other, 100_000)) {
      link.moveAll(new int[] {100_000}, 3);
    }
    NetPlugin selfSigned = network(SECURE);
    try (NetListenComm listener = one.listen(0)) {
      // It has a handle, but no certificate of the authority.
      assertThatThrownBy(() -> connect(selfSigned, listener.handle(), listener))
          .isInstanceOf(FluxCclException.class);
    }
    try (NetListenComm listener = selfSigned.listen(0)) {
      assertThatThrownBy(() -> connect(one, listener.handle(), listener))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining(InetAddress.getLoopbackAddress().getHostAddress());
    }
  }

  private static void connect(NetPlugin network, byte[] handle, NetListenComm listener) {
    NetHandle to = new NetHandle(handle);
    while (network.connect(0, to) == null) {
      assertThat(listener.accept()).isNull();
      Thread.onSpinWait();
    }
  }
}
