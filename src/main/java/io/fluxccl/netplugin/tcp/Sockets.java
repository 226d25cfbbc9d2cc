package io.fluxccl.netplugin.tcp;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.Channel;
import java.nio.channels.SocketChannel;
import jdk.net.ExtendedSocketOptions;

/** Configures and closes sockets. */
final class Sockets {
  private static final int KEEPALIVE_IDLE_SECONDS = 10;
  private static final int KEEPALIVE_INTERVAL_SECONDS = 5;
  private static final int KEEPALIVE_COUNT = 3;

  /** The send buffer's size in bytes of a connection that does not leave this host. */
  private static final int LOCAL_SEND_BUFFER = 256 << 10;

  private Sockets() {}

  /**
   * Configures a socket: small messages are sent at once, and keepalive detects a peer's host that
   * vanishes while no data is sent. Buffer sizes are left to the kernel, which adapts them to the
   * path, but for {@link #limitLocalSends}.
   */
  static void configure(SocketChannel channel) throws IOException {
    channel.configureBlocking(false);
    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
    channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
    if (channel.supportedOptions().contains(ExtendedSocketOptions.TCP_KEEPIDLE)) {
      channel.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS);
      channel.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, KEEPALIVE_INTERVAL_SECONDS);
      channel.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, KEEPALIVE_COUNT);
    }
  }

  /**
   * Limits the send buffer of a connected socket whose two ends are on this host. The kernel would
   * let the buffer grow to megabytes, and bytes would leave the cores' caches before the receiver
   * copies them.
   */
  static void limitLocalSends(SocketChannel channel) throws IOException {
    InetSocketAddress local = (InetSocketAddress) channel.getLocalAddress();
    InetSocketAddress remote = (InetSocketAddress) channel.getRemoteAddress();
    if (local.getAddress().equals(remote.getAddress())) {
      channel.setOption(StandardSocketOptions.SO_SNDBUF, LOCAL_SEND_BUFFER);
    }
  }

  /** Closes all channels of an array that are not null. */
  static void close(Channel[] channels) {
    for (Channel channel : channels) {
      if (channel != null) {
        close(channel);
      }
    }
  }

  static void close(Channel channel) {
    try {
      channel.close();
    } catch (IOException e) {
      // The socket is closed either way; the kernel still sends the data written before.
    }
  }
}
