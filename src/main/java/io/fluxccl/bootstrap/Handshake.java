// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.Frames.TlsChannels;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.RecurringWarning;
import io.fluxccl.wire.SocketTable;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
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

  /** The error's text for a side that accepts a connection and closes it. */
  static final String CLOSED =
      "it accepts connections and closes them without a greeting; is another service at this port?";

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
    private static final RecurringWarning STRANGERS = new RecurringWarning(LOG);

    /**
     * Separate from {@link #STRANGERS}, so that a flood of those does not hide why a rank can't
     * join.
     */
    private static final RecurringWarning MISMATCHES = new RecurringWarning(LOG);

    private static final Verdict WRONG_SECRET =
        new Verdict(
            Admission.WRONG_SECRET, Links.NOWHERE, 0, 0, new byte[BootstrapFrameCodec.MAC_BYTES]);

    private final Links links;
    private final byte[] nonce = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);
    private boolean proofReceived;

    Acceptor(Links links) {
      this.links = links;
    }

    @Override
    public void channelActive(ChannelHandlerContext ctx) {
      if (!links.job.sockets.isReady) {
        ctx.close(); // its process tries again
        return;
      }
      if (links.unproven.size() >= OpenFiles.pendingSockets()) {
        // A rank authenticates within a round trip, so this socket is the least likely to be one's.
        ChannelHandlerContext oldest = links.unproven.iterator().next();
        links.unproven.remove(oldest);
        refuse(oldest, "too many sockets have not proved themselves, and this is the oldest");
      }
      links.unproven.add(ctx);
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
      check(ctx, links.job.sockets.key.of(proof.kind()), proof);
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
      Verdict verdict = links.judge(proof);
      verdict = verdict.withMac(key.acceptorProof(proof, nonce, certificate, verdict));
      if (verdict.admission() == Admission.WELCOME) {
        ctx.channel().writeAndFlush(verdict);
        Frames.verify(ctx.channel(), key.frames(true, proof, nonce, certificate));
        Frames.sign(ctx.channel(), key.frames(false, proof, nonce, certificate));
        links.admit(ctx.channel(), this, proof);
      } else {
        LOG.debug("refused {} from {}: {}", proof.address(), ctx.channel(), verdict.admission());
        ctx.channel().writeAndFlush(verdict).addListener(ChannelFutureListener.CLOSE);
      }
    }

    @Override
    void refuse(ChannelHandlerContext ctx, String why) {
      refuse(ctx, why, STRANGERS);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      refuse(ctx, Frames.describe(cause), Frames.isMismatch(cause) ? MISMATCHES : STRANGERS);
    }

    private static void refuse(ChannelHandlerContext ctx, String why, RecurringWarning warning) {
      if (ctx.channel().isOpen()) {
        warning.warn("closed a connection from " + ctx.channel().remoteAddress() + ": " + why);
        ctx.close();
      }
    }

    private void done(ChannelHandlerContext ctx) {
      stopDeadline();
      links.unproven.remove(ctx);
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

  /** The connecting side: one attempt to connect and to get through the handshake. */
  static final class Connector extends Handshake {
    private static final Map<Admission, String> REFUSALS =
        Map.of(
            Admission.LEAVING, "its process leaves",
            Admission.DUPLICATE, "it has a link already",
            Admission.NO_LINK, "it has no such link");

    private final SessionKey key;
    final Proof request;
    private final Outcome outcome;
    private byte[] acceptorNonce;

    /** The acceptor's decision, with its own address; null before that. */
    Verdict verdict;

    /** Whether this side has sent its proof; no verdict counts before that. */
    private boolean proved;

    private boolean connected;
    private String trouble;
    private boolean decided;

    /**
     * @param request what this side proves, without the proof
     */
    Connector(SessionKey key, Proof request, Outcome outcome) {
      this.key = key;
      this.request = request;
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
        String why = Frames.isReset(failure) ? CLOSED : Frames.describe(failure);
        Loss other = OpenFiles.ranOut(failure) ? Loss.NO_DESCRIPTOR : Loss.NO_HANDSHAKE;
        outcome.failed(Frames.isRefused(failure) ? Loss.ABSENT : other, why);
      }
    }

    private void fail(ChannelHandlerContext ctx, Loss loss, String why) {
      decided = true;
      ctx.close();
      outcome.failed(loss, why);
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
      if (decided) {
        return; // its socket closes
      }
      if (frame instanceof Greeting greeting && acceptorNonce == null) {
        acceptorNonce = greeting.nonce();
        checkUser(ctx, key, () -> prove(ctx), () -> fail(ctx, Loss.FOREIGN, OTHER_USER));
      } else if (frame instanceof Verdict decision && proved) {
        decide(ctx, decision);
      } else {
        refuse(ctx, "unexpected " + frame.getClass().getSimpleName());
      }
    }

    private void prove(ChannelHandlerContext ctx) {
      proved = true;
      byte[] mac = key.connectorProof(request, acceptorNonce, certificate(ctx, true));
      ctx.channel().writeAndFlush(request.withMac(mac));
    }

    private void decide(ChannelHandlerContext ctx, Verdict decision) {
      Admission admission = decision.admission();
      if (admission == Admission.WRONG_SECRET) {
        fail(ctx, Loss.OTHER_SECRET, SECRETS_DIFFER);
        return;
      }
      byte[] certificate = certificate(ctx, true);
      byte[] expected = key.acceptorProof(request, acceptorNonce, certificate, decision);
      if (!SessionKey.equal(expected, decision.mac())) {
        refuse(ctx, "it does not know the secret");
        return;
      }
      verdict = decision;
      stopDeadline();
      if (admission == Admission.WELCOME) {
        decided = true;
        Frames.sign(ctx.channel(), key.frames(true, request, acceptorNonce, certificate));
        Frames.verify(ctx.channel(), key.frames(false, request, acceptorNonce, certificate));
        outcome.admitted(ctx.channel(), this);
      } else if (admission == Admission.OTHER_PROCESS) {
        fail(ctx, Loss.OTHER_PROCESS, "another process listens there");
      } else {
        fail(ctx, Loss.REFUSED, REFUSALS.get(admission));
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
      } else if (Frames.isReset(cause) && isUnanswered()) {
        refuse(ctx, CLOSED);
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
      return acceptorNonce == null ? CLOSED : "it closed the connection during the handshake";
    }
  }

  /**
   * Finds the users that own the two ends of a loopback connection. The kernel lists all sockets of
   * this network namespace with their owners. So this needs no shared file and no statement of the
   * other side, and works between containers that share the loopback.
   */
  static final class SocketOwners {
    /** The ends of connections that this process holds; those of ranks of one JVM are both here. */
    private static final Set<Ends> OWN = ConcurrentHashMap.newKeySet();

    private record Ends(SocketAddress own, SocketAddress other) {}

    private SocketOwners() {}

    /** Records a connection of this process until it is closed. */
    static void opened(Channel channel) {
      Ends ends = new Ends(channel.localAddress(), channel.remoteAddress());
      OWN.add(ends);
      channel.closeFuture().addListener(closed -> OWN.remove(ends));
    }

    /**
     * Returns whether a connection is one of the loopback whose ends belong to different users, or
     * to users that the kernel does not list.
     *
     * @param local address of this process's end
     * @param remote address of the other end
     * @return completes at once if the tables need not be read, or else on a thread that may block
     */
    static CompletableFuture<Boolean> differ(SocketAddress local, SocketAddress remote) {
      boolean isLoopback = ((InetSocketAddress) remote).getAddress().isLoopbackAddress();
      if (!isLoopback || OWN.contains(new Ends(remote, local))) {
        return CompletableFuture.completedFuture(false);
      }
      String own = SocketTable.key(local, remote);
      String other = SocketTable.key(remote, local);
      return SocketTable.find(Set.of(own, other), BlockingTasks.EXECUTOR)
          .thenApply(rows -> differ(rows.get(own), rows.get(other)));
    }

    static boolean differ(SocketTable.Row own, SocketTable.Row other) {
      return own == null || other == null || !own.user().equals(other.user());
    }
  }
}
