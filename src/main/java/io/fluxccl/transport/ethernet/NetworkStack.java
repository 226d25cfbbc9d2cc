package io.fluxccl.transport.ethernet;

import io.netty.channel.Channel;
import io.netty.channel.ChannelOption;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollChannelOption;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;

/** Which of Netty's implementations of sockets is used. */
enum NetworkStack {
  /** Linux's epoll through Netty's natives. */
  EPOLL,
  /** The JDK's NIO. */
  NIO;

  /** Epoll where it is there and NIO was not asked for. */
  static NetworkStack choose() {
    return !Boolean.getBoolean(EthernetTransport.FORCE_NIO_PROPERTY) && Epoll.isAvailable()
        ? EPOLL
        : NIO;
  }

  IoHandlerFactory ioHandlerFactory() {
    return this == EPOLL ? EpollIoHandler.newFactory() : NioIoHandler.newFactory();
  }

  Class<? extends ServerChannel> serverChannel() {
    return this == EPOLL ? EpollServerSocketChannel.class : NioServerSocketChannel.class;
  }

  Class<? extends Channel> channel() {
    return this == EPOLL ? EpollSocketChannel.class : NioSocketChannel.class;
  }

  /**
   * Small frames leave at once, and a peer's host that vanishes is noticed though nothing is sent.
   * The sizes of the socket's buffers are left to the kernel, whose own tuning is faster than any
   * fixed size.
   */
  void configure(Channel channel) {
    channel.config().setOption(ChannelOption.TCP_NODELAY, true);
    channel.config().setOption(ChannelOption.SO_KEEPALIVE, true);
    if (this == EPOLL) {
      channel.config().setOption(EpollChannelOption.TCP_KEEPIDLE, 10);
      channel.config().setOption(EpollChannelOption.TCP_KEEPINTVL, 5);
      channel.config().setOption(EpollChannelOption.TCP_KEEPCNT, 3);
    }
  }
}
