// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.tcp.TcpFixture.OPTIONS;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpServer;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Connections to a listener from processes that are not its peer. */
@org.junit.jupiter.api.Timeout(120)
class StrayConnectionsTest {
  private final List<Socket> strays = new ArrayList<>();
  private TcpNetPlugin network;
  private NetListenComm listener;

  @BeforeEach
  void listen() {
    listen(OPTIONS);
  }

  private void listen(TcpOptions options) {
    network = new TcpNetPlugin(options);
    listener = network.listen(0);
  }

  /** Listens with this time for a connect instead. */
  private void listenFor(Duration connects) {
    network.close();
    listen(OPTIONS.withTimeouts(LONG, connects));
  }

  @AfterEach
  void close() throws IOException {
    for (Socket stray : strays) {
      stray.close();
    }
    network.close();
  }

  private TcpHandle handle() {
    return TcpHandle.decode(new NetHandle(listener.handle()).bytes());
  }

  private Socket stray() throws IOException {
    InetSocketAddress address = handle().address();
    Socket socket = new Socket(address.getAddress(), address.getPort());
    strays.add(socket);
    return socket;
  }

  private static byte[] hello(byte[] token, int stream, int streams) {
    ByteBuffer out = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
    WireDescriptor.putHello(out, new WireDescriptor.Hello(token, 5, stream, streams, "a:1"));
    byte[] bytes = new byte[WireDescriptor.HELLO_LENGTH];
    out.get(bytes);
    return bytes;
  }

  /** Accepts until the socket has been closed by the listener. */
  static void acceptUntilDropped(NetListenComm listener, Socket socket) {
    Awaitility.await()
        .atMost(LONG)
        .pollInterval(Duration.ofMillis(1))
        .until(
            () -> {
              assertThat(listener.accept()).isNull();
              return isClosedByPeer(socket);
            });
  }

  private static boolean isClosedByPeer(Socket socket) throws IOException {
    socket.setSoTimeout(1);
    try {
      return socket.getInputStream().read() < 0;
    } catch (SocketTimeoutException e) {
      return false;
    } catch (SocketException e) {
      return true;
    }
  }

  private void checkThatItStillAccepts() {
    new MessageLink(network, network, listener, 64).close();
  }

  @Test
  void shouldDropGarbageAndStillAccept() throws IOException {
    Socket http = stray();
    String request = "GET / HTTP/1.1\r\nHost: nobody\r\nUser-Agent: scanner\r\n\r\n";
    http.getOutputStream().write(request.repeat(3).getBytes(StandardCharsets.US_ASCII));
    stray().close();
    acceptUntilDropped(listener, http);
    checkThatItStillAccepts();
  }

  @Test
  void shouldDropConnectionWithAWrongToken() throws IOException {
    Socket guess = stray();
    guess.getOutputStream().write(hello(new byte[TcpHandle.TOKEN_LENGTH], 0, 1));
    acceptUntilDropped(listener, guess);
    checkThatItStillAccepts();
  }

  @Test
  void shouldAcceptBesideMoreSilentSocketsThanItKeeps() throws IOException {
    for (int i = 0; i < TcpServer.MAX_PENDING + 20; i++) {
      stray();
      assertThat(listener.accept()).isNull();
    }
    acceptUntilDropped(listener, strays.get(0));
    checkThatItStillAccepts();
  }

  @Test
  void shouldListenOnlyWhileAListenerIsOpen() {
    network.close();
    network = TcpNetPlugin.at(InetAddress.getLoopbackAddress(), OPTIONS);
    for (int i = 0; i < 2; i++) {
      listener = network.listen(0);
      checkThatItStillAccepts();
      assertThatThrownBy(this::stray).isInstanceOf(ConnectException.class);
    }
  }

  @Test
  void shouldDropConnectionWithoutHelloAfterTimeout() throws IOException {
    listenFor(Duration.ofMillis(20));
    Socket silent = stray();
    silent.getOutputStream().write(1);
    acceptUntilDropped(listener, silent);
  }

  @Test
  void shouldFailIfASenderDisconnectsBeforeAllItsStreamsConnect() throws IOException {
    Socket half = stray();
    half.getOutputStream().write(hello(handle().token(), 1, 4));
    half.close();
    assertThrows(RemoteFailure.class, () -> MessageLink.await(listener::accept), "a:1");
  }

  @Test
  void shouldNotWaitForeverForASendersOtherStreams() throws IOException {
    listenFor(Duration.ofMillis(200));
    Socket half = stray();
    half.getOutputStream().write(hello(handle().token(), 1, 4));
    assertThrows(Timeout.class, () -> acceptUntilDropped(listener, half), "4 of 5 sockets");
  }

  @Test
  void shouldFailIfAnotherServiceAnswers() throws Exception {
    byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
    try (ServerSocket other = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      byte[] handle =
          new TcpHandle((InetSocketAddress) other.getLocalSocketAddress(), token, null).encode();
      NetHandle to = new NetHandle(handle);
      assertThat(network.connect(0, to)).isNull();
      Socket accepted = other.accept();
      strays.add(accepted);
      accepted.getOutputStream().write(new byte[WireDescriptor.WELCOME_LENGTH]);
      assertThatThrownBy(() -> MessageLink.await(() -> network.connect(0, to)))
          .hasMessageContaining("it answered with no welcome");
    }
  }

  @Test
  void shouldBlameThePathIfNoConnectCanReachTheAddress() throws Exception {
    byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
    InetSocketAddress multicast = new InetSocketAddress(InetAddress.getByName("224.0.0.1"), 1);
    NetHandle to = new NetHandle(new TcpHandle(multicast, token, null).encode());
    assertThrows(
        TransportFailure.class,
        () -> MessageLink.await(() -> network.connect(0, to)),
        "connect to 224.0.0.1:1",
        "is this interface the one that reaches it");
  }
}
