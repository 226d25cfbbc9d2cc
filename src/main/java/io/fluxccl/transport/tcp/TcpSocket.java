// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.tls.Tls;
import io.fluxccl.tls.TlsStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import javax.net.ssl.SSLEngine;
import jdk.net.ExtendedSocketOptions;

/**
 * A nonblocking socket, over TLS if the network uses it. Used by one thread at a time, except for
 * {@link #close}.
 */
public final class TcpSocket {
  private static final int KEEPALIVE_IDLE_SECONDS = 10;
  private static final int KEEPALIVE_INTERVAL_SECONDS = 5;
  private static final int KEEPALIVE_COUNT = 3;

  /** The send buffer's size in bytes of a connection that does not leave this host. */
  private static final int LOCAL_SEND_BUFFER = 256 << 10;

  private final SocketChannel channel;

  /** Null without TLS, and before it begins. */
  private TlsStream tls;

  private final ByteBuffer[] one = new ByteBuffer[1];

  /**
   * Configures a socket: small messages are sent at once, and keepalive detects a peer's host that
   * vanishes while no data is sent. Buffer sizes are left to the kernel, which adapts them to the
   * path, but for {@link #limitLocalSends}.
   *
   * @throws IOException if the socket can't be configured; it is closed then
   */
  public TcpSocket(SocketChannel channel) throws IOException {
    this.channel = channel;
    try {
      configure();
    } catch (IOException e) {
      close();
      throw e;
    }
  }

  private void configure() throws IOException {
    channel.configureBlocking(false);
    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
    channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
    if (channel.supportedOptions().contains(ExtendedSocketOptions.TCP_KEEPIDLE)) {
      channel.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS);
      channel.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, KEEPALIVE_INTERVAL_SECONDS);
      channel.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, KEEPALIVE_COUNT);
    }
  }

  /** Returns the socket's channel. */
  public SocketChannel channel() {
    return channel;
  }

  /**
   * Limits the send buffer of a connected socket whose two ends are on this host. The kernel would
   * let the buffer grow to megabytes, and bytes would leave the cores' caches before the receiver
   * copies them.
   */
  public void limitLocalSends() throws IOException {
    InetSocketAddress local = (InetSocketAddress) channel.getLocalAddress();
    InetSocketAddress remote = (InetSocketAddress) channel.getRemoteAddress();
    if (local.getAddress().equals(remote.getAddress())) {
      channel.setOption(StandardSocketOptions.SO_SNDBUF, LOCAL_SEND_BUFFER);
    }
  }

  /**
   * Begins TLS on a connected socket.
   *
   * @throws IOException if TLS can't begin; the socket is closed then
   */
  public void secure(SSLEngine engine) throws IOException {
    try {
      tls = new TlsStream(channel, engine);
    } catch (IOException e) {
      close();
      throw e;
    }
  }

  /** Advances the handshake; returns whether it is complete. Without TLS there is none. */
  public boolean isSecured() throws IOException {
    return tls == null || tls.handshake();
  }

  /** Returns whether the other side has the certificate of that fingerprint. */
  public boolean isCertified(byte[] fingerprint) throws IOException {
    return MessageDigest.isEqual(Tls.peerFingerprint(tls.engine()), fingerprint);
  }

  /** Reads into a buffer; returns the number of bytes, or -1 at the end of the stream. */
  public int read(ByteBuffer to) throws IOException {
    return tls == null ? channel.read(to) : tls.read(to);
  }

  /** Reads into several buffers, in their order. */
  public long read(ByteBuffer[] to) throws IOException {
    if (tls == null) {
      return channel.read(to, 0, to.length);
    }
    long n = 0;
    for (ByteBuffer each : to) {
      int some = tls.read(each);
      if (some < 0) {
        return n == 0 ? -1 : n;
      }
      n += some;
      if (each.hasRemaining()) {
        return n;
      }
    }
    return n;
  }

  /**
   * Writes a buffer's bytes. With TLS the next call must first pass the bytes that do not count as
   * written; the buffer's position is then undefined.
   */
  public int write(ByteBuffer from) throws IOException {
    if (tls == null) {
      return channel.write(from);
    }
    one[0] = from;
    return (int) tls.write(one, 1);
  }

  /** Writes the bytes of the first {@code count} buffers, like {@link #write(ByteBuffer)}. */
  public long write(ByteBuffer[] from, int count) throws IOException {
    return tls == null ? channel.write(from, 0, count) : tls.write(from, count);
  }

  /** Returns the address of the other side, for messages. */
  public String remote() {
    try {
      InetSocketAddress remote = (InetSocketAddress) channel.getRemoteAddress();
      return remote == null
          ? "nobody"
          : remote.getAddress().getHostAddress() + ":" + remote.getPort();
    } catch (IOException e) {
      return "a closed socket";
    }
  }

  /** Closes the socket. Any thread. */
  public void close() {
    try {
      channel.close();
    } catch (IOException e) {
      // The socket is closed either way; the kernel still sends the data written before.
    }
  }

  /** Closes all sockets of an array that are not null. */
  public static void close(TcpSocket[] sockets) {
    for (TcpSocket socket : sockets) {
      if (socket != null) {
        socket.close();
      }
    }
  }
}
