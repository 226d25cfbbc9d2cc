// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import static io.fluxccl.testing.FinalMocks.mockFinal;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.tls.Tls;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSession;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class TcpServerTest {
  private static final long MAGIC = 0x4f_4c4c_4548L;
  private static final int LENGTH = Long.BYTES + TcpHandle.TOKEN_LENGTH;

  private final byte[] token = TcpServer.newToken();
  private final List<TcpSocket> taken = new ArrayList<>();

  private final TcpServer.Listener listener =
      new TcpServer.Listener() {
        @Override
        public byte[] token() {
          return token;
        }

        @Override
        public String take(TcpSocket socket, ByteBuffer hello, long now) {
          taken.add(socket);
          return null;
        }
      };

  /** Returns TLS that this engine is to serve. */
  private static Tls of(SSLEngine engine) {
    SSLSession session = mock(SSLSession.class);
    when(session.getPacketBufferSize()).thenReturn(1024);
    when(session.getApplicationBufferSize()).thenReturn(1024);
    when(engine.getSession()).thenReturn(session);
    Tls tls = mockFinal(Tls.class);
    when(tls.accepting()).thenReturn(engine);
    return tls;
  }

  @Test
  void shouldTakeNoPlainTextFromASocketOnWhichTlsCannotBegin() throws Exception {
    SSLEngine engine = mock(SSLEngine.class);
    doThrow(new SSLException("of a test")).when(engine).beginHandshake();
    assertDropped(engine);
  }

  @Test
  void shouldDropASocketIfItsTlsEngineThrowsARuntimeException() {
    SSLEngine engine = mock(SSLEngine.class);
    when(engine.getHandshakeStatus()).thenThrow(new IllegalStateException("of a test"));
    assertDropped(engine);
  }

  private void assertDropped(SSLEngine engine) {
    TcpServer.Options options =
        new TcpServer.Options(
            PortRange.ANY, Optional.of(of(engine)), Duration.ofSeconds(60), MAGIC, LENGTH);
    try (TcpServer server = new TcpServer("lo", InetAddress.getLoopbackAddress(), options);
        SocketChannel peer = SocketChannel.open(server.address())) {
      server.add(listener);
      ByteBuffer hello = ByteBuffer.allocate(LENGTH).order(ByteOrder.LITTLE_ENDIAN);
      peer.write(hello.putLong(MAGIC).put(token).flip());
      peer.configureBlocking(false);
      Awaitility.await()
          .pollInSameThread()
          .until(
              () -> {
                server.poll(System.nanoTime());
                return !taken.isEmpty() || isClosed(peer);
              });
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    assertThat(taken).isEmpty();
  }

  private static boolean isClosed(SocketChannel peer) {
    try {
      return peer.read(ByteBuffer.allocate(1)) < 0;
    } catch (IOException e) {
      return true; // the server has read none of the bytes
    }
  }
}
