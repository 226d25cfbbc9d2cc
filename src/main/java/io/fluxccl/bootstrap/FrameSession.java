// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * One end of a connection after the handshake. Only on the event loop.
 *
 * <p>A side that leaves in good order sends a goodbye and nothing after it; the other side closes
 * the socket. So no data is unread when a socket closes, and no reset can overtake the goodbye.
 */
@Sharable // a session that resumes moves to another channel
abstract class FrameSession extends SimpleChannelInboundHandler<BootstrapFrame> {
  private static final long GRACE_MILLIS = 1000;

  private Channel channel;
  private boolean receivedGoodbye;
  private boolean sentGoodbye;
  private long excusedNanos = System.nanoTime();

  /** Returns how long a leaving side waits for the others to close; less if some are silent. */
  static long graceMillis(List<Integer> silent) {
    return silent.isEmpty() ? GRACE_MILLIS : GRACE_MILLIS / 2;
  }

  FrameSession(Channel channel) {
    super(BootstrapFrame.class);
    this.channel = channel;
  }

  /** Replaces the handshake in the channel's pipeline and allows longer frames. */
  final void replace(ChannelHandler handshake, int limit) {
    raiseLimit(limit);
    channel.pipeline().replace(handshake, "session", this);
  }

  final Channel channel() {
    return channel;
  }

  /** Continues with another channel. */
  final void channel(Channel next) {
    channel = next;
  }

  /** Handles a frame that is no goodbye. */
  abstract void received(ChannelHandlerContext ctx, BootstrapFrame frame);

  /** Called when the other side leaves in good order. */
  void departed() {}

  /** Sends a frame, unless this side has sent its goodbye. */
  final void send(BootstrapFrame frame) {
    if (!sentGoodbye && isOpen()) {
      write(frame);
    }
  }

  /** Sends a frame, even after this side's goodbye. */
  ChannelFuture write(BootstrapFrame frame) {
    return channel.writeAndFlush(frame);
  }

  /** Sends a message; completes {@code done} when the network has it. */
  final void send(Data data, int peer, CompletableFuture<Void> done) {
    write(data)
        .addListener(
            written -> {
              if (written.isSuccess() || isOpen()) {
                done.complete(null);
              } else {
                done.completeExceptionally(unsent(peer));
              }
            });
  }

  static RemoteFailure unsent(int peer) {
    return RemoteFailure.of(peer, "rank %s has left or died; nothing more can be sent to it", peer);
  }

  final void sendGoodbye() {
    send(new Goodbye());
    sentGoodbye = true;
  }

  final boolean sentGoodbye() {
    return sentGoodbye;
  }

  final boolean receivedGoodbye() {
    return receivedGoodbye;
  }

  /** Returns whether frames may still be sent and received. */
  boolean isOpen() {
    return channel.isActive();
  }

  void raiseLimit(int limit) {
    Frames.raiseLimit(channel, limit);
  }

  final void close() {
    channel.close();
  }

  /** Whether nothing was received since a moment of {@link System#nanoTime()}. */
  final boolean isSilentSince(long nanos) {
    return isOpen()
        && !receivedGoodbye
        && excusedNanos - nanos < 0
        && lastReceivedNanos() - nanos < 0;
  }

  /** Returns when the last bytes arrived. */
  long lastReceivedNanos() {
    return Frames.lastReceivedNanos(channel);
  }

  /**
   * Restarts the measurement of the other side's silence, because this process was suspended.
   *
   * @param silent whether it was silent already; it then stays silent until it answers
   */
  final void restartSilenceUnless(boolean silent) {
    if (!silent) {
      excusedNanos = System.nanoTime();
    }
  }

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (frame instanceof Goodbye) {
      receivedGoodbye = true;
      departed();
      ctx.close();
    } else {
      received(ctx, frame);
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    ctx.close();
  }
}
