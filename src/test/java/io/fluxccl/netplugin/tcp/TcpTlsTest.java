// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.testing.Rounds;
import io.fluxccl.tls.Certificates;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.tcp.TcpHandle;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The network over TLS: all of the contract, and which certificates are accepted. */
@Timeout(120)
class TcpTlsTest extends TcpNetworkContract {
  private static final TcpOptions SECURE = OPTIONS.withTls(Optional.of(Tls.selfSigned()));

  @TempDir Path folder;

  TcpTlsTest() {
    super(SECURE);
  }

  @Test
  void shouldMoveConsecutiveMessagesOfAllSizesOverSeveralStreams() {
    NetPlugin network = network(SECURE.withStreams(3, 2));
    MessageLink link = link(network, network, Arrays.stream(SIZES).sum());
    link.moveAll(SIZES, Rounds.of(3, 20)); // slow without the second compiler
  }

  @Test
  void shouldRefuseAListenerIfItsCertificateDiffersFromItsHandle() {
    NetPlugin network = network(SECURE);
    try (NetListenComm listener = network.listen(0)) {
      byte[] handle = listener.handle();
      handle[handle.length - 1] ^= 1;
      assertThrows(
          RemoteFailure.class, () -> connect(network, handle, listener), "another certificate");
    }
  }

  @Test
  void shouldFailIfOnlyOneSideUsesTls() {
    NetPlugin secure = network(SECURE);
    NetPlugin open = network(OPTIONS);
    try (NetListenComm withTls = secure.listen(0);
        NetListenComm withoutTls = open.listen(0)) {
      assertRefused(() -> connect(open, withTls.handle(), withTls), "FLUXCCL_TLS");
      assertRefused(() -> connect(secure, withoutTls.handle(), withoutTls), "FLUXCCL_TLS");
    }
  }

  @Test
  void shouldDropAConnectionThatDoesNotUseTls() throws Exception {
    NetPlugin network = network(SECURE);
    try (NetListenComm listener = network.listen(0);
        Socket stray = new Socket()) {
      stray.connect(TcpHandle.decode(ByteBuffer.wrap(listener.handle())).address());
      stray.getOutputStream().write(new byte[WireDescriptor.HELLO_LENGTH]);
      StrayConnectionsTest.acceptUntilDropped(listener, stray);
      try (MessageLink link = new MessageLink(network, network, listener, 100)) {
        link.move(100);
      }
    }
  }

  @Test
  void shouldAcceptOnlyCertificatesOfTheAuthority() throws Exception {
    Certificates made = new Certificates(folder);
    NetPlugin one = network(SECURE.withTls(Optional.of(made.of("one", "EC"))));
    NetPlugin other = network(SECURE.withTls(Optional.of(made.of("other", "RSA"))));
    MessageLink link = link(one, other, 100_000);
    link.moveAll(new int[] {100_000}, 3);
    NetPlugin selfSigned = network(SECURE);
    try (NetListenComm listener = one.listen(0)) {
      // It has a handle, but no certificate of the authority.
      assertThrows(FluxCclException.class, () -> connect(selfSigned, listener.handle(), listener));
    }
    try (NetListenComm listener = selfSigned.listen(0)) {
      assertThrows(
          RemoteFailure.class,
          () -> connect(one, listener.handle(), listener),
          InetAddress.getLoopbackAddress().getHostAddress());
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
