package io.fluxccl.bootstrap;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.DecoderException;
import java.net.InetSocketAddress;

/** Sockets that carry frames. */
final class Frames {
  private static final int BACKLOG = 1024;

  private Frames() {}

  /** Writes a frame and flushes. On the event loop. */
  static ChannelFuture write(Channel channel, BootstrapFrame frame) {
    return channel.writeAndFlush(BootstrapFrameCodec.encode(frame, channel.alloc()));
  }

  /**
   * Listens; who connects goes through the handshake.
   *
   * @param channels holds the sockets while they are open
   */
  static ChannelFuture listen(
      EventLoop loop,
      InetSocketAddress address,
      HandshakeAcceptor.Gate gate,
      ChannelGroup channels) {
    return new ServerBootstrap()
        .group(loop)
        .channel(NioServerSocketChannel.class)
        .option(ChannelOption.SO_BACKLOG, BACKLOG)
        .option(ChannelOption.SO_REUSEADDR, true)
        .childOption(ChannelOption.TCP_NODELAY, true)
        .childOption(ChannelOption.AUTO_CLOSE, false)
        .handler(
            new ChannelInitializer<Channel>() {
              @Override
              protected void initChannel(Channel channel) {
                // Before it is bound: it may have to be closed before that.
                channels.add(channel);
              }
            })
        .childHandler(
            new ChannelInitializer<Channel>() {
              @Override
              protected void initChannel(Channel channel) {
                channels.add(channel);
                channel.pipeline().addLast(FrameDecoder.NAME, new FrameDecoder());
                channel.pipeline().addLast(new HandshakeAcceptor(gate));
              }
            })
        .bind(address);
  }

  /** Lets a channel whose other side is trusted carry longer frames. */
  static void raiseLimit(Channel channel, int limit) {
    ((FrameDecoder) channel.pipeline().get(FrameDecoder.NAME)).raiseLimit(limit);
  }

  /** A cause in words, without the wrapping of the decoder. */
  static String describe(Throwable cause) {
    Throwable inner =
        cause instanceof DecoderException && cause.getCause() != null ? cause.getCause() : cause;
    return inner.getMessage() == null ? inner.toString() : inner.getMessage();
  }
}
