// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.Frames.TlsChannels;
import io.fluxccl.concurrent.RecurringWarning;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The handshake with which every connection begins: the acceptor sends a nonce, the connector
 * proves that it knows the secret, the acceptor answers with its decision and its own proof. A
 * connection whose handshake does not finish within 5 s is closed, without any other effect. Only
 * on the event loop.
 */
abstract class Handshake extends SimpleChannelInboundHandler<BootstrapFrame> {
  static final int LIMIT_MILLIS = 5000;

  /** The error's text for a side that accepts a connection and sends nothing. */
  static final String UNANSWERED =
      "it accepts connections but does not answer; is another service at this port, or is its"
          + " process stopped, or does it use TLS (FLUXCCL_TLS) and this rank not?";

  /** The error's text for a side that refuses this side's proof. */
  static final String SECRETS_DIFFER =
      "it refuses this rank's secret; give every rank the same FLUXCCL_SECRET, and every job an"
          + " address of its own";

  private static final String OTHER_USER =
      "its process belongs to another user; ranks of several users need the same FLUXCCL_SECRET";

  private static final Logger LOG = LoggerFactory.getLogger(Handshake.class);

  final byte[] nonce = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);
  private ScheduledFuture<?> deadline;

  private Handshake() {
    super(BootstrapFrame.class);
  }

  /** Closes the connection. */
  abstract void refuse(ChannelHandlerContext ctx, String why);

  final void begin(ChannelHandlerContext ctx) {
    SocketOwners.opened(ctx.channel());
    String late = "no handshake within " + LIMIT_MILLIS + " ms";
    deadline =
        ctx.executor().schedule(() -> refuseLate(ctx, late), LIMIT_MILLIS, TimeUnit.MILLISECONDS);
  }

  void refuseLate(ChannelHandlerContext ctx, String why) {
    refuse(ctx, why);
  }

  final void stopDeadline() {
    if (deadline != null) {
      deadline.cancel(false);
    }
  }

  /** Returns the fingerprint of the acceptor's certificate; empty without TLS. */
  static byte[] certificate(ChannelHandlerContext ctx, boolean connects) {
    try {
      return TlsChannels.fingerprint(ctx.channel(), connects);
    } catch (SSLException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "the other side has no certificate: " + e.getMessage(), e);
    }
  }

  /**
   * Checks that both ends of a loopback connection have one user: without a secret, any process can
   * authenticate.
   */
  final void checkUser(ChannelHandlerContext ctx, SessionKey key, Runnable same, Runnable other) {
    CompletableFuture<Boolean> differ =
        key.known()
            ? SocketOwners.differ(ctx.channel().localAddress(), ctx.channel().remoteAddress())
            : CompletableFuture.completedFuture(false);
    Executor here = differ.isDone() ? Runnable::run : ctx.executor();
    differ.thenAcceptAsync(differs -> goOn(ctx, differs ? other : same), here);
  }

  private void goOn(ChannelHandlerContext ctx, Runnable step) {
    try {
      if (ctx.channel().isActive()) {
        step.run();
      }
    } catch (RuntimeException e) {
      exceptionCaught(ctx, e);
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    refuse(ctx, Frames.describe(cause));
  }

  /** The result of a connector's attempt; exactly one method is called, once. */
  interface Outcome {
    /** Replaces {@code connector} by a session: both sides are authenticated. */
    void admitted(Channel channel, Connector connector);

    void failed(Loss loss, String why);
  }

  /** The causes of an attempt's failure. */
  enum Loss {
    /** There is no connection, or no handshake. */
    NO_HANDSHAKE,
    /** This process has no descriptor for a socket. */
    NO_DESCRIPTOR,
    /** No process listens at the address. */
    ABSENT,
    /** The other side is another service, or its user, version or TLS setting differs. */
    FOREIGN,
    /** The acceptor refuses this side's secret. This refusal is not authenticated. */
    OTHER_SECRET,
    /** The acceptor knows the secret, and is not the process that this side wants. */
    OTHER_PROCESS,
    /** The acceptor knows the secret and refuses for another reason. */
    REFUSED;

    /** Returns whether the process that this side wants does not listen at the address. */
    boolean isGone() {
      return this == ABSENT || this == OTHER_PROCESS || isForeign();
    }

    boolean isForeign() {
      return this == FOREIGN || this == OTHER_SECRET;
    }
  }

  /**
   * The accepting side. Until the other side has proved that it knows the secret, it reads only a
   * {@link Hello} and a {@link Proof}, which are short.
   */
  static final class Acceptor extends Handshake {
    private static final Verdict WRONG_SECRET =
        new Verdict(
            Admission.WRONG_SECRET, Links.NOWHERE, 0, new byte[BootstrapFrameCodec.MAC_BYTES]);

    private final Links links;
    private boolean proofReceived;

    Acceptor(Links links) {
      this.links = links;
    }

    @Override
    public void channelActive(ChannelHandlerContext ctx) {
      if (!links.sockets().isReady) {
        ctx.close(); // its process tries again
        return;
      }
      ChannelHandlerContext oldest = links.unproven().begins(ctx);
      if (oldest != null) {
        refuse(oldest, "too many sockets have not proved themselves, and this is the oldest");
      }
      begin(ctx);
      ctx.channel().writeAndFlush(new Greeting(nonce));
    }

    @Override
    protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Hello && !proofReceived) {
        return; // of the right version
      }
      if (!(frame instanceof Proof proof) || proofReceived) {
        refuse(ctx, "unexpected " + frame.getClass().getSimpleName());
        return;
      }
      proofReceived = true;
      check(ctx, links.sockets().key.of(proof.kind()), proof);
    }

    private void check(ChannelHandlerContext ctx, SessionKey key, Proof proof) {
      byte[] certificate = certificate(ctx, false);
      if (!SessionKey.equal(key.connectorProof(proof, nonce, certificate), proof.mac())) {
        ctx.channel().writeAndFlush(WRONG_SECRET);
        refuse(ctx, "wrong secret");
        return;
      }
      checkUser(
          ctx,
          key,
          () -> decide(ctx, key, proof, certificate),
          () -> {
            ctx.channel().writeAndFlush(WRONG_SECRET);
            refuse(ctx, OTHER_USER);
          });
    }

    private void decide(
        ChannelHandlerContext ctx, SessionKey key, Proof proof, byte[] certificate) {
      done(ctx);
      Admission admission = links.judge(proof);
      Verdict verdict = links.verdict(admission);
      verdict = verdict.withMac(key.acceptorProof(proof, nonce, certificate, verdict));
      if (admission == Admission.WELCOME) {
        Frames.verify(ctx.channel(), key.frames(true, proof, nonce, certificate));
        links.admit(ctx.channel(), this, proof);
        ctx.channel().writeAndFlush(verdict);
        Frames.sign(ctx.channel(), key.frames(false, proof, nonce, certificate));
      } else {
        LOG.debug("refused {} from {}: {}", proof.address(), ctx.channel(), admission);
        ctx.channel().writeAndFlush(verdict).addListener(ChannelFutureListener.CLOSE);
      }
    }

    @Override
    void refuse(ChannelHandlerContext ctx, String why) {
      Unproven.refuse(ctx, why, false);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      Unproven.refuse(ctx, Frames.describe(cause), Frames.isMismatch(cause));
    }

    private void done(ChannelHandlerContext ctx) {
      stopDeadline();
      links.unproven().ends(ctx);
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      done(ctx);
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext ctx) {
      done(ctx);
    }
  }

  /** The sockets that a process has accepted and that are not authenticated yet. */
  static final class Unproven {
    private static final RecurringWarning STRANGERS = new RecurringWarning(LOG);

    /**
     * Separate from {@link #STRANGERS}, so that a flood of those does not hide why a rank can't
     * join.
     */
    private static final RecurringWarning MISMATCHES = new RecurringWarning(LOG);

    /** The oldest first. */
    private final Set<ChannelHandlerContext> sockets = new LinkedHashSet<>();

    /**
     * Adds a socket.
     *
     * @return the socket to close because there are too many, or null. A rank authenticates within
     *     a round trip, so the oldest socket is the least likely to be a rank's
     */
    private ChannelHandlerContext begins(ChannelHandlerContext socket) {
      ChannelHandlerContext oldest = null;
      if (sockets.size() >= OpenFiles.pendingSockets()) {
        Iterator<ChannelHandlerContext> all = sockets.iterator();
        oldest = all.next();
        all.remove();
      }
      sockets.add(socket);
      return oldest;
    }

    /** Removes a socket that is authenticated or closed. */
    private void ends(ChannelHandlerContext socket) {
      sockets.remove(socket);
    }

    /** Closes a socket, and logs why. */
    private static void refuse(ChannelHandlerContext socket, String why, boolean isMismatch) {
      if (socket.channel().isOpen()) {
        RecurringWarning warning = isMismatch ? MISMATCHES : STRANGERS;
        warning.warn("closed a connection from " + socket.channel().remoteAddress() + ": " + why);
        socket.close();
      }
    }
  }

  /** The connecting side: one attempt to connect and to get through the handshake. */
  static final class Connector extends Handshake {
    private final SessionKey key;
    private final Proof request;
    private final Outcome outcome;
    private byte[] acceptorNonce;
    private Verdict peer;

    /** Whether this side has sent its proof; no verdict counts before that. */
    private boolean proved;

    private boolean connected;
    private String trouble;
    private boolean decided;

    /**
     * @param address of this process's own listener
     * @param id of this process
     * @param target the id of the process to connect to, or 0 for any
     */
    Connector(
        SessionKey key,
        LinkKind kind,
        InetSocketAddress address,
        long id,
        long target,
        Outcome outcome) {
      this.key = key;
      this.request = new Proof(kind, address, id, target, nonce, BootstrapFrame.NO_BYTES);
      this.outcome = outcome;
    }

    /** Begins the attempt; see {@link Frames#connect}. */
    void connect(EventLoop loop, InetAddress from, InetSocketAddress to, ChannelGroup channels) {
      Frames.connect(loop, from, to, channels, this)
          .addListener(done -> Frames.onLoop(loop, () -> connected(done.cause())));
    }

    private void connected(Throwable failure) {
      if (failure != null && !decided) {
        decided = true;
        String why = Frames.describe(failure);
        Loss other = OpenFiles.ranOut(failure) ? Loss.NO_DESCRIPTOR : Loss.NO_HANDSHAKE;
        outcome.failed(Frames.isRefused(failure) ? Loss.ABSENT : other, why);
      }
    }

    private void fail(ChannelHandlerContext ctx, Loss loss, String why) {
      decided = true;
      ctx.close();
      outcome.failed(loss, why);
    }

    /** Returns the acceptor's decision, with its own address. */
    Verdict verdict() {
      return peer;
    }

    @Override
    public void channelActive(ChannelHandlerContext ctx) {
      connected = true;
      begin(ctx);
      ctx.channel().writeAndFlush(new Hello());
    }

    /** Whether there is a connection on which the other side has sent no greeting yet. */
    boolean isUnanswered() {
      return connected && acceptorNonce == null && !decided;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Greeting greeting && acceptorNonce == null) {
        acceptorNonce = greeting.nonce();
        checkUser(ctx, key, () -> prove(ctx), () -> fail(ctx, Loss.FOREIGN, OTHER_USER));
      } else if (frame instanceof Verdict verdict && proved) {
        decide(ctx, verdict);
      } else {
        refuse(ctx, "unexpected " + frame.getClass().getSimpleName());
      }
    }

    private void prove(ChannelHandlerContext ctx) {
      proved = true;
      byte[] mac = key.connectorProof(request, acceptorNonce, certificate(ctx, true));
      ctx.channel().writeAndFlush(request.withMac(mac));
    }

    private void decide(ChannelHandlerContext ctx, Verdict verdict) {
      Admission admission = verdict.admission();
      if (admission == Admission.WRONG_SECRET) {
        fail(ctx, Loss.OTHER_SECRET, SECRETS_DIFFER);
        return;
      }
      byte[] expected = key.acceptorProof(request, acceptorNonce, certificate(ctx, true), verdict);
      if (!SessionKey.equal(expected, verdict.mac())) {
        refuse(ctx, "it does not know the secret");
        return;
      }
      peer = verdict;
      stopDeadline();
      if (admission == Admission.WELCOME) {
        decided = true;
        Frames.sign(
            ctx.channel(), key.frames(true, request, acceptorNonce, certificate(ctx, true)));
        Frames.verify(
            ctx.channel(), key.frames(false, request, acceptorNonce, certificate(ctx, true)));
        outcome.admitted(ctx.channel(), this);
      } else if (admission == Admission.OTHER_PROCESS) {
        fail(ctx, Loss.OTHER_PROCESS, "another process listens there");
      } else {
        boolean isLeaving = admission == Admission.LEAVING;
        fail(ctx, Loss.REFUSED, isLeaving ? "its process leaves" : "it has a link already");
      }
    }

    @Override
    void refuse(ChannelHandlerContext ctx, String why) {
      trouble = why;
      ctx.close();
    }

    @Override
    void refuseLate(ChannelHandlerContext ctx, String why) {
      refuse(ctx, isUnanswered() ? UNANSWERED : why);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      if (Frames.isMismatch(cause) && isUnanswered()) {
        fail(ctx, Loss.FOREIGN, Frames.describe(cause));
      } else {
        super.exceptionCaught(ctx, cause);
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      stopDeadline();
      if (!decided) {
        decided = true;
        outcome.failed(Loss.NO_HANDSHAKE, trouble == null ? closedBecause() : trouble);
      }
    }

    private String closedBecause() {
      return acceptorNonce == null
          ? "it accepts connections and closes them without a greeting; is another service at this"
              + " port?"
          : "it closed the connection during the handshake";
    }
  }
}
