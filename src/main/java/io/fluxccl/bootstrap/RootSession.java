package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;

/** The root's side of one rank's connection. Only on the event loop. */
final class RootSession extends SimpleChannelInboundHandler<BootstrapFrame> {
  private final BootstrapRoot root;
  private final int rank;
  private final Channel channel;
  private Register register;
  private boolean heardGoodbye;
  private boolean saidGoodbye;
  private long lastHeardNanos = System.nanoTime();

  RootSession(BootstrapRoot root, int rank, Channel channel) {
    this.root = root;
    this.rank = rank;
    this.channel = channel;
  }

  int rank() {
    return rank;
  }

  /** What the rank said of itself, or null so far. */
  Register register() {
    return register;
  }

  boolean heardGoodbye() {
    return heardGoodbye;
  }

  boolean isSilentSince(long nanos) {
    return lastHeardNanos - nanos < 0;
  }

  void excuseSilence() {
    lastHeardNanos = System.nanoTime();
  }

  void tell(BootstrapFrame frame) {
    if (!saidGoodbye && channel.isActive()) {
      Frames.write(channel, frame);
    }
  }

  void sayGoodbye() {
    tell(new Goodbye());
    saidGoodbye = true;
  }

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    lastHeardNanos = System.nanoTime();
    if (frame instanceof Register first && register == null) {
      register = first;
      root.registered(this);
    } else if (frame instanceof Failed failed && register != null) {
      root.failed(failed);
    } else if (frame instanceof Goodbye) {
      heardGoodbye = true;
      ctx.close();
    } else if (!(frame instanceof Pong)) {
      ctx.close();
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    root.closed(this);
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    ctx.close();
  }
}
