package io.fluxccl.netplugin.tcp;

import java.io.IOException;
import java.net.StandardSocketOptions;
import java.nio.channels.Channel;
import java.nio.channels.SocketChannel;
import jdk.net.ExtendedSocketOptions;

/** Configures and closes sockets. */
final class Sockets {
  private static final int KEEPALIVE_IDLE_SECONDS = 10;
  private static final int KEEPALIVE_INTERVAL_SECONDS = 5;
  private static final int KEEPALIVE_COUNT = 3;

  private Sockets() {}

  /**
   * Configures a socket: small messages are sent at once, and keepalive detects a peer's host that
   * vanishes while no data is sent. Buffer sizes are left to the kernel, whose own tuning beats any
   * fixed size.
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
