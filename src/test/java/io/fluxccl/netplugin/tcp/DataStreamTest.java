// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.times;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.transport.tcp.TcpSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.BufferUtil;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A data stream, and the thread that drives it, at moments that are rare. */
@Timeout(120)
class DataStreamTest {
  /** A part of which bytes have moved fails; the comm's thread posts one before it learns that. */
  @Test
  void shouldFailAPartThatIsPostedDuringAFailure() throws Exception {
    ByteBuffer place = ByteBuffer.allocateDirect(4096);
    TcpComm comm = mock(TcpComm.class);
    TcpRequest request = new TcpRequest(comm);
    try (ServerSocketChannel server = ServerSocketChannel.open();
        SocketChannel peer = SocketChannel.open(bound(server))) {
      TcpSocket socket = new TcpSocket(server.accept());
      DataStream stream = new DataStream(comm, socket, false, 4);
      stream.movedBy(mock(IoThread.class));
      stream.post(request, BufferUtil.address(place), 4096);
      peer.write(ByteBuffer.allocate(1000));
      peer.close();
      Awaitility.await()
          .pollInSameThread()
          .until(
              () -> {
                stream.work();
                return !stream.hasWork();
              });
      stream.post(request, BufferUtil.address(place), 16);
      assertThat(stream.work()).isZero();
      assertThat(stream.hasWork()).isFalse();
      socket.close();
    }
    verify(comm, times(2)).streamFailed(any());
  }

  /** Other connections share the thread that drives the stream. */
  @Test
  void shouldFailOnlyItsConnectionIfItsSocketThrowsARuntimeException() throws Exception {
    TcpComm comm = mock(TcpComm.class);
    TcpSocket socket = new TcpSocket(SocketChannel.open()); // throws NotYetConnectedException
    DataStream stream = new DataStream(comm, socket, false, 4);
    stream.movedBy(mock(IoThread.class));
    stream.post(new TcpRequest(comm), BufferUtil.address(ByteBuffer.allocateDirect(16)), 16);
    assertThat(stream.work()).isZero();
    assertThat(stream.hasWork()).isFalse();
    socket.close();
    verify(comm).streamFailed(any());
  }

  private static InetSocketAddress bound(ServerSocketChannel server) throws Exception {
    server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    return (InetSocketAddress) server.getLocalAddress();
  }

  /**
   * A part is posted after the last of the polls, while the thread does not sleep yet. If TLS holds
   * its bytes, the selector never reports the socket.
   */
  @Test
  void shouldPollAPartThatIsPostedBeforeTheThreadSleeps() throws Exception {
    Pipe pipe = Pipe.open();
    pipe.source().configureBlocking(false);
    IoThread thread = new IoThread(0);
    AtomicInteger polls = new AtomicInteger();
    CountDownLatch polled = new CountDownLatch(1);
    DataStream stream = mock(DataStream.class);
    when(stream.channel()).thenReturn(pipe.source());
    when(stream.work())
        .thenAnswer(
            call -> {
              int poll = polls.incrementAndGet();
              if (poll == IoThread.LOOKS_BEFORE_SLEEP) {
                thread.wake();
              } else if (poll > IoThread.LOOKS_BEFORE_SLEEP) {
                polled.countDown();
              }
              return 0L;
            });
    try {
      thread.add(stream);
      assertThat(polled.await(60, TimeUnit.SECONDS)).isTrue();
    } finally {
      thread.close();
      pipe.source().close();
      pipe.sink().close();
    }
  }
}
