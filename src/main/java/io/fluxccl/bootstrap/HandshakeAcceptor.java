package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The accepting side of the handshake. Nothing but a {@link Proof} of fixed size is read before the
 * other side has shown that it knows the secret; who doesn't in time is closed.
 */
final class HandshakeAcceptor extends SimpleChannelInboundHandler<BootstrapFrame> {
  static final long DEADLINE_MILLIS = 5000;

  private static final Logger LOG = LoggerFactory.getLogger(HandshakeAcceptor.class);
  private static final int MAX_UNPROVEN = 1024;

  private final Gate gate;
  private final byte[] nonce = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);
  private ScheduledFuture<?> deadline;
  private Proof parked;
  private boolean counted;

  HandshakeAcceptor(Gate gate) {
    this.gate = gate;
  }

  /** Who decides. All on the event loop. */
  abstract static class Gate {
    private int unproven;
    private boolean warned;

    /** The key, or null while it is not known; then {@link #park} follows. */
    abstract SessionKey key();

    /** Keeps a handshake until the key is known; {@link #resume} goes on with it. */
    abstract void park(ChannelHandlerContext ctx, HandshakeAcceptor acceptor);

    /** Whether to admit one that knows the secret. */
    abstract Admission judge(Proof proof);

    /** What the verdict's detail says. */
    abstract int detail();

    /** It was admitted: put its own handler in place of {@code acceptor}. */
    abstract void admitted(Channel channel, HandshakeAcceptor acceptor, Proof proof);
  }

  @Override
  public void channelActive(ChannelHandlerContext ctx) {
    if (gate.unproven >= MAX_UNPROVEN) {
      refuse(ctx, "too many unfinished handshakes");
      return;
    }
    gate.unproven++;
    counted = true;
    deadline =
        ctx.executor()
            .schedule(
                () -> refuse(ctx, "no handshake within " + DEADLINE_MILLIS + " ms"),
                DEADLINE_MILLIS,
                TimeUnit.MILLISECONDS);
    Frames.write(ctx.channel(), new Greeting(nonce));
  }

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (!(frame instanceof Proof) || parked != null) {
      refuse(ctx, "unexpected " + frame.getClass().getSimpleName());
      return;
    }
    if (gate.key() == null) {
      parked = (Proof) frame;
      gate.park(ctx, this);
    } else {
      check(ctx, (Proof) frame);
    }
  }

  /** The key is known now. */
  void resume(ChannelHandlerContext ctx) {
    if (ctx.channel().isActive()) {
      check(ctx, parked);
    }
  }

  private void check(ChannelHandlerContext ctx, Proof proof) {
    SessionKey key = gate.key();
    byte[] expected =
        key.connectorProof(
            proof.kind(), proof.rank(), proof.nRanks(), proof.target(), nonce, proof.nonce());
    if (!SessionKey.equal(expected, proof.mac())) {
      refuse(ctx, "wrong secret, or a job that is over");
      return;
    }
    done();
    Admission admission = gate.judge(proof);
    int detail = gate.detail();
    Verdict verdict =
        new Verdict(admission, detail, key.acceptorProof(proof, nonce, admission, detail));
    if (admission != Admission.WELCOME) {
      LOG.debug("refused rank {} from {}: {}", proof.rank(), remote(ctx), admission);
      Frames.write(ctx.channel(), verdict).addListener(ChannelFutureListener.CLOSE);
      return;
    }
    gate.admitted(ctx.channel(), this, proof);
    Frames.write(ctx.channel(), verdict);
  }

  private void refuse(ChannelHandlerContext ctx, String why) {
    if (ctx.channel().isOpen()) {
      if (gate.warned) {
        LOG.debug("closed a connection from {}: {}", remote(ctx), why);
      } else {
        gate.warned = true;
        LOG.warn(
            "closed a connection from {}: {}; more of them are logged at debug level",
            remote(ctx),
            why);
      }
      ctx.close();
    }
  }

  private static Object remote(ChannelHandlerContext ctx) {
    return ctx.channel().remoteAddress();
  }

  private void done() {
    if (counted) {
      counted = false;
      gate.unproven--;
      deadline.cancel(false);
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    done();
  }

  @Override
  public void handlerRemoved(ChannelHandlerContext ctx) {
    done();
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    refuse(ctx, Frames.describe(cause));
  }
}
