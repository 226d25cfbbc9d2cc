// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.concurrent.RecurringWarning;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A session that continues on another connection when its own is reset, because both processes are
 * alive: a dead process ends its connections without a reset, or no longer listens. All frames
 * except heartbeats are kept until the other side confirms them, and sent again. The side that
 * connected reconnects; meanwhile the other side probes whether it still listens. Only on the event
 * loop.
 */
abstract class ResumingSession extends FrameSession implements Handshake.Outcome {
  private static final Logger LOG = LoggerFactory.getLogger(ResumingSession.class);
  private static final RecurringWarning REPLACED = new RecurringWarning(LOG);
  private static final int CONFIRM_FRAMES = 64;
  private static final int CONFIRM_BYTES = 256 << 10;
  private static final int FRAME_OVERHEAD = 64;
  private static final long MIN_BACKOFF_MILLIS = 10;
  private static final long MAX_BACKOFF_MILLIS = 200;
  private static final byte[] NO_SESSION = new byte[BootstrapFrameCodec.NONCE_BYTES];

  private final byte[] id;
  private int limit;
  private final ArrayDeque<BootstrapFrame> kept = new ArrayDeque<>();
  private long keptBytes;
  private long sent;
  private long received;
  private long confirmedFrames;
  private long unconfirmedBytes;
  private boolean reset;
  private boolean resuming;
  private long lastReceivedNanos;
  private long backoffMillis;

  /**
   * @param id the connector's nonce
   */
  ResumingSession(byte[] id, Channel channel) {
    super(channel);
    this.id = id;
  }

  /**
   * Returns whether the session survives a reset now: both sides know each other, and neither
   * leaves.
   */
  abstract boolean mayResume();

  /**
   * On the side that connected, reconnects with this as the outcome. On the other side, probes
   * whether the connector still listens, and calls {@link #later} if it may, {@link #end} if not.
   */
  abstract void reconnectOrProbe();

  /** Called when the session is over. */
  abstract void ended();

  /** Called when the session continues on another connection. */
  void resumed() {}

  final boolean isResuming() {
    return resuming;
  }

  @Override
  final boolean isOpen() {
    return super.isOpen() || resuming || (reset && mayResume());
  }

  @Override
  final void raiseLimit(int newLimit) {
    limit = newLimit;
    super.raiseLimit(newLimit);
  }

  @Override
  final long lastReceivedNanos() {
    return resuming ? lastReceivedNanos : super.lastReceivedNanos();
  }

  // ---- counting and keeping ----

  @Override
  final ChannelFuture write(BootstrapFrame frame) {
    if (isHeartbeat(frame) && !channel().isWritable()) {
      // The queued bytes serve as a heartbeat once the other side reads them.
      return channel().newSucceededFuture();
    }
    if (counts(frame)) {
      sent++;
      kept.add(frame);
      keptBytes += bytes(frame);
      while (keptBytes > limit) {
        forget(); // a reset before the other side confirms it is final
      }
    }
    return resuming ? channel().newSucceededFuture() : writeNow(frame);
  }

  private ChannelFuture writeNow(BootstrapFrame frame) {
    return super.write(frame).addListener((ChannelFuture done) -> written(done));
  }

  // A write may report the reset; a later read then finds only the end of the stream.
  private void written(ChannelFuture done) {
    reset |= done.channel() == channel() && isReset(done.cause());
  }

  private static boolean counts(BootstrapFrame frame) {
    return !isHeartbeat(frame) && !(frame instanceof Confirm);
  }

  private static boolean isHeartbeat(BootstrapFrame frame) {
    return frame instanceof Ping || frame instanceof Pong;
  }

  private static int bytes(BootstrapFrame frame) {
    return FRAME_OVERHEAD + (frame instanceof Data data ? data.message().bytes().length : 0);
  }

  private void forget() {
    keptBytes -= bytes(kept.remove());
  }

  /** Drops the kept frames that have arrived; returns whether all later frames are kept. */
  private boolean confirmed(long arrived) {
    if (arrived > sent || arrived < sent - kept.size()) {
      return false;
    }
    while (kept.size() > sent - arrived) {
      forget();
    }
    return true;
  }

  @Override
  protected final void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (ctx.channel() != channel()) {
      return; // the other side sends it again
    }
    if (frame instanceof Confirm confirm) {
      if (confirm.received() > sent) {
        ctx.close();
      } else {
        confirmed(Math.max(confirm.received(), sent - kept.size()));
      }
      return;
    }
    if (counts(frame)) {
      received++;
      unconfirmedBytes += bytes(frame);
      if (received - confirmedFrames >= CONFIRM_FRAMES || unconfirmedBytes >= CONFIRM_BYTES) {
        confirmedFrames = received;
        unconfirmedBytes = 0;
        write(new Confirm(received));
      }
    }
    super.channelRead0(ctx, frame);
  }

  // ---- a reset ----

  private static boolean isReset(Throwable cause) {
    return cause instanceof IOException
        && !(cause instanceof ClosedChannelException)
        && !(cause instanceof SSLException);
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    reset |= ctx.channel() == channel() && isReset(cause);
    ctx.close();
  }

  @Override
  public final void channelInactive(ChannelHandlerContext ctx) {
    if (ctx.channel() != channel() || resuming) {
      return;
    }
    if (reset && mayResume()) {
      lastReceivedNanos = super.lastReceivedNanos();
      resuming = true;
      backoffMillis = MIN_BACKOFF_MILLIS;
      // No warning yet: a process that ends may reset its connections, too.
      LOG.debug("a connection of the bootstrap was reset: {}", ctx.channel());
      tryAgain();
    } else {
      ended();
    }
  }

  private void tryAgain() {
    if (!resuming) {
      return;
    }
    if (!mayResume()) {
      end();
    } else {
      reconnectOrProbe();
    }
  }

  final void later() {
    channel().eventLoop().schedule(this::tryAgain, backoffMillis, TimeUnit.MILLISECONDS);
    backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
  }

  final void end() {
    if (resuming) {
      resuming = false;
      reset = false;
      ended();
    }
  }

  private void resume(Channel next, ChannelHandler handshake) {
    Channel before = channel();
    channel(next);
    resuming = false;
    reset = false;
    before.close(); // this side may not have noticed the reset
    replace(handshake, limit);
    confirmedFrames = received;
    unconfirmedBytes = 0;
    kept.forEach(this::writeNow);
    REPLACED.warn("a connection of the bootstrap was reset and is replaced: " + next);
    resumed();
  }

  // ---- the side that connects ----

  @Override
  public final void admitted(Channel next, Handshake.Connector connector) {
    if (!resuming || !mayResume()) {
      next.close();
      end();
      return;
    }
    next.pipeline().replace(connector, "resumption", new Answered());
    next.writeAndFlush(new Resume(id, received));
  }

  /** Waits for the number of the last frame that has arrived at the other side. */
  private final class Answered extends SimpleChannelInboundHandler<BootstrapFrame> {
    private boolean decided;

    Answered() {
      super(BootstrapFrame.class);
    }

    @Override
    protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
      decided = true;
      if (resuming && isHere(frame)) {
        resume(ctx.channel(), this);
      } else {
        ctx.close();
        end();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      if (!decided) {
        later();
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      ctx.close();
    }
  }

  /** Returns whether a frame confirms frames of this session, and all later ones are kept. */
  private boolean isHere(BootstrapFrame frame) {
    return frame instanceof Resume other
        && Arrays.equals(other.session(), id)
        && confirmed(other.received());
  }

  @Override
  public final void refused(Admission admission, int expectedRanks) {
    end();
  }

  @Override
  public final void absent(String why) {
    end();
  }

  @Override
  public final void foreign(String why) {
    end();
  }

  /** Ends the session: another job listens there, maybe that of this job's survivors. */
  @Override
  public final void secretMismatch() {
    end();
  }

  @Override
  public final void lost(String why) {
    later();
  }

  // ---- the side that accepts ----

  /**
   * Resumes a session on the connection of a connector that requests it.
   *
   * @param session the session with the connector's rank, or null
   */
  static void accept(Channel next, Handshake.Acceptor acceptor, ResumingSession session) {
    next.pipeline().replace(acceptor, "resumption", new Asked(session));
  }

  /** Waits for the number of the last frame that has arrived at the connector, and answers. */
  private static final class Asked extends SimpleChannelInboundHandler<BootstrapFrame> {
    private final ResumingSession session;

    Asked(ResumingSession session) {
      super(BootstrapFrame.class);
      this.session = session;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (session != null && session.mayResume() && session.isHere(frame)) {
        ctx.channel().writeAndFlush(new Resume(session.id, session.received));
        session.resume(ctx.channel(), this);
      } else {
        // The connector closes: its session is over.
        ctx.channel().writeAndFlush(new Resume(NO_SESSION, 0));
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      ctx.close();
    }
  }
}
