package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.util.List;

/**
 * A connection between two ranks after the handshake. Messages go from the connector to the
 * acceptor only; goodbyes and bad news go both ways.
 *
 * <p>Who leaves says goodbye, sends nothing after it, and lets the other side close: so nothing is
 * unread when a socket closes, and no reset can overtake the goodbye.
 */
final class PeerLink extends SimpleChannelInboundHandler<BootstrapFrame> {
  private final Listener listener;
  private final int peer;
  private final boolean incoming;
  private final Channel channel;
  private boolean attached;
  private boolean heardGoodbye;
  private boolean saidGoodbye;

  PeerLink(Listener listener, int peer, boolean incoming, Channel channel) {
    this.listener = listener;
    this.peer = peer;
    this.incoming = incoming;
    this.channel = channel;
  }

  /** Who hears of it, on the event loop. */
  interface Listener {
    void attached(PeerLink link);

    void received(PeerLink link, Data data);

    void failedElsewhere(FluxCclException reason);

    void departed(List<Integer> ranks);

    /** The link is closed; {@link #orderly()} tells how. */
    void closed(PeerLink link);
  }

  int peer() {
    return peer;
  }

  boolean incoming() {
    return incoming;
  }

  /** Whether both sides have seen the handshake through. */
  boolean isAttached() {
    return attached;
  }

  boolean isOpen() {
    return channel.isOpen();
  }

  /** Whether losing it says nothing about the peer's life. */
  boolean orderly() {
    return heardGoodbye || saidGoodbye || !attached;
  }

  /** The connector's first frame. */
  void attach() {
    attached = true;
    Frames.write(channel, new Attach());
  }

  ChannelFuture send(StreamKey key, Message message) {
    return Frames.write(channel, new Data(key.space(), key.channel(), key.sequence(), message));
  }

  /** Sends news, unless the goodbye is out. */
  void tell(BootstrapFrame news) {
    if (!saidGoodbye && channel.isActive()) {
      Frames.write(channel, news);
    }
  }

  void sayGoodbye() {
    tell(new Goodbye());
    saidGoodbye = true;
  }

  void close() {
    channel.close();
  }

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (frame instanceof Data data && incoming && attached) {
      listener.received(this, data);
    } else if (frame instanceof Attach && incoming && !attached) {
      attached = true;
      listener.attached(this);
    } else if (frame instanceof Failed failed) {
      listener.failedElsewhere(failed.toException());
    } else if (frame instanceof Departed departed) {
      listener.departed(departed.ranks());
    } else if (frame instanceof Goodbye) {
      heardGoodbye = true;
      listener.departed(List.of(peer));
      ctx.close();
    } else {
      violated(ctx, "unexpected " + frame.getClass().getSimpleName());
    }
  }

  private void violated(ChannelHandlerContext ctx, String what) {
    if (attached && !heardGoodbye && ctx.channel().isOpen()) {
      listener.failedElsewhere(
          new TransportFailure(peer, "the connection with rank " + peer + " is unusable: " + what));
    }
    ctx.close();
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    listener.closed(this);
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    if (cause instanceof java.io.IOException) {
      // A reset: what it means is decided when the channel has closed.
      ctx.close();
    } else {
      violated(ctx, Frames.describe(cause));
    }
  }
}
