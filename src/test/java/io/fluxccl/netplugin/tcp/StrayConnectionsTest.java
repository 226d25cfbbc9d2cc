// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.tcp.TcpNetPluginTest.LONG;
import static io.fluxccl.netplugin.tcp.TcpNetPluginTest.OPTIONS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.testing.HangLimit;
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
import org.junit.jupiter.api.Test;

/** Connections to a listener from processes that are not its peer. */
@org.junit.jupiter.api.Timeout(120)
class StrayConnectionsTest {
  private TcpNetPlugin network = new TcpNetPlugin(OPTIONS);
  private final List<Socket> strays = new ArrayList<>();

  @AfterEach
  void close() throws IOException {
    for (Socket stray : strays) {
      stray.close();
    }
    network.close();
  }

  private static WireDescriptor.Handle read(NetListenComm listener) {
    return WireDescriptor.readHandle(new NetHandle(listener.handle()).bytes());
  }

  private Socket stray(NetListenComm listener) throws IOException {
    InetSocketAddress address = read(listener).address();
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
  private static void acceptUntilDropped(NetListenComm listener, Socket socket) {
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

  private void checkThatItStillAccepts(NetListenComm listener) {
    NetHandle handle = new NetHandle(listener.handle());
    NetSendComm send = null;
    NetRecvComm receive = null;
    long began = HangLimit.start();
    while (send == null || receive == null) {
      send = send == null ? network.connect(0, handle) : send;
      receive = receive == null ? listener.accept() : receive;
      HangLimit.check(began, "connected");
    }
    send.close();
    receive.close();
  }

  @Test
  void shouldDropGarbageAndStillAccept() throws IOException {
    try (NetListenComm listener = network.listen(0)) {
      Socket http = stray(listener);
      String request = "GET / HTTP/1.1\r\nHost: nobody\r\nUser-Agent: scanner\r\n\r\n";
      http.getOutputStream().write(request.repeat(3).getBytes(StandardCharsets.US_ASCII));
      stray(listener).close();
      acceptUntilDropped(listener, http);
      checkThatItStillAccepts(listener);
    }
  }

  @Test
  void shouldDropConnectionWithAWrongToken() throws IOException {
    try (NetListenComm listener = network.listen(0)) {
      Socket guess = stray(listener);
      guess.getOutputStream().write(hello(new byte[WireDescriptor.TOKEN_LENGTH], 0, 1));
      acceptUntilDropped(listener, guess);
      checkThatItStillAccepts(listener);
    }
  }

  @Test
  void shouldAcceptBesideMoreSilentSocketsThanItKeeps() throws IOException {
    try (NetListenComm listener = network.listen(0)) {
      for (int i = 0; i < TcpServer.MAX_PENDING + 20; i++) {
        stray(listener);
        assertThat(listener.accept()).isNull();
      }
      checkThatItStillAccepts(listener);
      acceptUntilDropped(listener, strays.get(0));
    }
  }

  @Test
  void shouldListenOnlyWhileAListenerIsOpen() {
    network.close();
    network = TcpNetPlugin.at(InetAddress.getLoopbackAddress(), OPTIONS);
    for (int i = 0; i < 2; i++) {
      NetListenComm listener = network.listen(0);
      checkThatItStillAccepts(listener);
      listener.close();
      assertThatThrownBy(() -> stray(listener)).isInstanceOf(ConnectException.class);
    }
  }

  @Test
  void shouldDropConnectionWithoutHelloAfterTimeout() throws IOException {
    network.close();
    network = new TcpNetPlugin(OPTIONS.withTimeouts(LONG, Duration.ofMillis(20)));
    try (NetListenComm listener = network.listen(0)) {
      Socket silent = stray(listener);
      silent.getOutputStream().write(1);
      acceptUntilDropped(listener, silent);
    }
  }

  @Test
  void shouldFailIfASenderDisconnectsBeforeAllItsStreamsConnect() throws IOException {
    try (NetListenComm listener = network.listen(0)) {
      Socket half = stray(listener);
      half.getOutputStream().write(hello(read(listener).token(), 1, 4));
      half.close();
      assertThatThrownBy(() -> acceptUntilDropped(listener, half))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("a:1");
    }
  }

  @Test
  void shouldNotWaitForeverForASendersOtherStreams() throws IOException {
    network.close();
    network = new TcpNetPlugin(OPTIONS.withTimeouts(LONG, Duration.ofMillis(200)));
    try (NetListenComm listener = network.listen(0)) {
      Socket half = stray(listener);
      half.getOutputStream().write(hello(read(listener).token(), 1, 4));
      assertThatThrownBy(() -> acceptUntilDropped(listener, half))
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("4 of 5 sockets");
    }
  }

  @Test
  void shouldFailIfAnotherServiceAnswers() throws Exception {
    byte[] token = new byte[WireDescriptor.TOKEN_LENGTH];
    try (ServerSocket other = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      byte[] handle =
          WireDescriptor.handle((InetSocketAddress) other.getLocalSocketAddress(), token, null);
      NetHandle to = new NetHandle(handle);
      assertThat(network.connect(0, to)).isNull();
      Socket accepted = other.accept();
      strays.add(accepted);
      accepted.getOutputStream().write(new byte[WireDescriptor.WELCOME_LENGTH]);
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThatThrownBy(
                          () -> {
                            while (network.connect(0, to) == null) {
                              Thread.onSpinWait();
                            }
                          })
                      .hasMessageContaining("it answered with no welcome"));
    }
  }
}
