// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.tcp.TcpFixture.OPTIONS;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpServer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Test;

/** A network that is closed while a connection is on its way, and does not know of it. */
@org.junit.jupiter.api.Timeout(120)
class TcpLateConnectionTest {
  private static final int STREAMS = 2;

  private final TcpOptions options = OPTIONS.withStreams(STREAMS, 1);
  @AutoClose private final TcpNetPlugin closing = new TcpNetPlugin(options);
  @AutoClose private final TcpNetPlugin other = new TcpNetPlugin(options);

  private static Throwable failureOf(Supplier<?> call, Runnable meanwhile) {
    return catchThrowable(
        () -> {
          long began = HangLimit.start();
          while (call.get() == null) {
            meanwhile.run();
            HangLimit.check(began, "the call fails");
          }
        });
  }

  @Test
  void shouldCloseTheSocketsOfAConnectIfTheNetworkIsClosed() {
    NetListenComm listener = other.listen(0);
    TcpHandle handle = TcpHandle.decode(new NetHandle(listener.handle()).bytes());
    TcpConnect connect = new TcpConnect(closing, 0, handle);
    closing.close();
    NetRecvComm[] peer = new NetRecvComm[1];
    Runnable accept = () -> peer[0] = peer[0] == null ? listener.accept() : peer[0];
    assertThat(failureOf(connect::poll, accept)).isInstanceOf(InvalidUsage.class);
    connect.close();
    assertThat(MessageLink.failureOf(peer[0].irecv(0, 0, 0, null)))
        .isInstanceOf(RemoteFailure.class);
  }

  @Test
  void shouldCloseTheSocketsOfAnAcceptIfTheNetworkIsClosed() throws IOException {
    TcpDevice device = TcpDevice.find(options).get(0);
    TcpServer.Options hellos =
        new TcpServer.Options(
            options.ports(),
            options.tls(),
            options.handshakeTimeout(),
            WireDescriptor.HELLO_MAGIC,
            WireDescriptor.HELLO_LENGTH);
    TcpServer server = new TcpServer(device.name(), device.address(), hellos);
    TcpListenComm listener = new TcpListenComm(closing, 0, server);
    TcpHandle handle = TcpHandle.decode(new NetHandle(listener.handle()).bytes());
    closing.close();
    try (SocketChannel first = greet(handle, 0);
        SocketChannel second = greet(handle, 1);
        SocketChannel third = greet(handle, 2)) {
      assertThat(failureOf(listener::accept, Thread::yield)).isInstanceOf(InvalidUsage.class);
      listener.close();
      for (SocketChannel socket : new SocketChannel[] {first, second, third}) {
        ByteBuffer rest = ByteBuffer.allocate(2 * WireDescriptor.WELCOME_LENGTH);
        // Reads until the listener has closed the socket.
        while (socket.read(rest) >= 0) {}
      }
    }
  }

  private static SocketChannel greet(TcpHandle handle, int stream) throws IOException {
    SocketChannel socket = SocketChannel.open(handle.address());
    ByteBuffer hello = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
    WireDescriptor.putHello(
        hello, new WireDescriptor.Hello(handle.token(), 7, stream, STREAMS, "test"));
    socket.write(hello);
    return socket;
  }

  @Test
  void shouldCloseAListenerThatIsOpenedDuringClose() throws Exception {
    for (int i = 0; i < 1000; i++) {
      TcpNetPlugin network = new TcpNetPlugin(options);
      CountDownLatch ready = new CountDownLatch(1);
      CompletableFuture<NetListenComm> listening =
          CompletableFuture.supplyAsync(
              () -> {
                ready.countDown();
                return network.listen(0);
              });
      ready.await();
      network.close();
      try {
        NetListenComm listener = listening.get(60, TimeUnit.SECONDS);
        assertRefused(listener::accept);
      } catch (ExecutionException e) {
        assertThat(e).hasCauseInstanceOf(InvalidUsage.class);
      }
    }
  }
}
