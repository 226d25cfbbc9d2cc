// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.tls.Tls;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.ssl.SslHandler;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLEngine;

/**
 * Netty's own TLS over loopback, for comparison: one connection, writes of 1 MiB while the channel
 * is writable, received bytes counted; GB/s, the best of six seconds.
 */
final class NettyTlsLoopback {
  private static final int MESSAGE = 1 << 20;
  private static final int SECONDS = 6;

  static final Bench BENCH =
      Bench.onHost(
          "netty-tls",
          "Netty's TLS over the loopback, to compare with ethernet and -Dfluxccl.tls=1",
          (rows, arguments) -> run(rows));

  private static void run(Bench.Rows rows) throws InterruptedException {
    EventLoopGroup group = new MultiThreadIoEventLoopGroup(2, NioIoHandler.newFactory());
    Counter counter = new Counter();
    Channel server =
        new ServerBootstrap()
            .group(group)
            .channel(NioServerSocketChannel.class)
            .childHandler(behind(Tls.selfSigned().accepting(), counter))
            .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
            .sync()
            .channel();
    new Bootstrap()
        .group(group)
        .channel(NioSocketChannel.class)
        .handler(behind(Tls.selfSigned().connecting(), new Source()))
        .connect(server.localAddress())
        .sync();
    double best = 0;
    for (int second = 0; second < SECONDS; second++) {
      long before = counter.received.get();
      long start = System.nanoTime();
      TimeUnit.SECONDS.sleep(1);
      best =
          Math.max(best, (counter.received.get() - before) / (double) (System.nanoTime() - start));
    }
    rows.add("Netty, the JDK's TLS 1.3", best, "GB/s");
    group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
  }

  private static ChannelInitializer<Channel> behind(
      SSLEngine engine, ChannelInboundHandlerAdapter last) {
    return new ChannelInitializer<>() {
      @Override
      protected void initChannel(Channel channel) {
        ChannelPipeline pipeline = channel.pipeline();
        pipeline.addLast(new SslHandler(engine), last);
      }
    };
  }

  private static final class Counter extends SimpleChannelInboundHandler<ByteBuf> {
    private final AtomicLong received = new AtomicLong();

    @Override
    protected void channelRead0(ChannelHandlerContext ctx, ByteBuf message) {
      received.lazySet(received.get() + message.readableBytes());
    }
  }

  private static final class Source extends ChannelInboundHandlerAdapter {
    private final ByteBuf bytes =
        Unpooled.unreleasableBuffer(Unpooled.directBuffer(MESSAGE).writerIndex(MESSAGE));

    @Override
    public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
      write(ctx);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext ctx) {
      write(ctx);
    }

    private void write(ChannelHandlerContext ctx) {
      while (ctx.channel().isWritable()) {
        ctx.writeAndFlush(bytes.duplicate());
      }
    }
  }
}
