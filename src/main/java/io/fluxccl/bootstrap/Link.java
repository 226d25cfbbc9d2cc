// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.FormedAsProposed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.Handshake.Loss;
import io.fluxccl.bootstrap.Links.Backoff;
import io.fluxccl.concurrent.RecurringWarning;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One end of a connection between two processes, after the handshake. Only on the event loop.
 *
 * <p>It outlives its socket: a side that leaves sends a goodbye, so a socket that closes without
 * one was reset, or its process has died. All frames except heartbeats are kept until the other
 * side confirms them, and sent again on the next socket. The side that connected reconnects;
 * meanwhile the other side connects only to find out whether the connector still listens. A process
 * that does not listen has died.
 */
@Sharable // moves to another channel
final class Link extends SimpleChannelInboundHandler<BootstrapFrame> implements Handshake.Outcome {
  private static final Logger LOG = LoggerFactory.getLogger(Link.class);
  private static final RecurringWarning REPLACED = new RecurringWarning(LOG);
  private static final int CONFIRM_FRAMES = 64;
  private static final int CONFIRM_BYTES = 256 << 10;
  private static final int FRAME_OVERHEAD = 64;

  /** The states of a link. */
  private enum State {
    /** The acceptor does not know yet whether the connector has its verdict. */
    ACCEPTED,
    OPEN,
    /** Has no socket. */
    RESUMING,
    /** One side has sent its goodbye. */
    LEAVING,
    ENDED
  }

  private final Links links;
  final InetSocketAddress peer;
  final long peerId;
  final boolean incoming;
  private final byte[] session;
  private final int limit;
  private final ArrayDeque<BootstrapFrame> kept = new ArrayDeque<>();
  private Channel channel;
  private State state;
  private boolean receivedGoodbye;
  private boolean sentGoodbye;
  private long keptBytes;
  private long sent;
  private long received;
  private long confirmedFrames;
  private long unconfirmedBytes;
  private long lastReceivedNanos;
  private Backoff backoff;

  /** The rosters of the last proposals: a group that forms so is announced by its nonce. */
  private Roster proposedHere = Roster.NONE;

  private Roster proposedThere = Roster.NONE;

  /**
   * @param session the connector's nonce
   */
  private Link(
      Links links,
      InetSocketAddress peer,
      long peerId,
      boolean incoming,
      byte[] session,
      Channel channel) {
    super(BootstrapFrame.class);
    this.links = links;
    this.peer = peer;
    this.peerId = peerId;
    this.incoming = incoming;
    this.session = session;
    this.limit = BootstrapFrameCodec.frameLimit(links.job.sockets.options.messageLimit());
    this.channel = channel;
    this.state = incoming ? State.ACCEPTED : State.OPEN;
  }

  /** Creates the connector's side. */
  static Link connected(Links links, Channel channel, Handshake.Connector connector) {
    BootstrapFrame.Verdict verdict = connector.verdict;
    Link link =
        new Link(links, verdict.address(), verdict.id(), false, connector.request.nonce(), channel);
    link.replace(connector);
    link.write(new Attach());
    return link;
  }

  /** Creates the acceptor's side. */
  static Link accepted(
      Links links, Channel channel, Handshake.Acceptor acceptor, BootstrapFrame.Proof proof) {
    Link link = new Link(links, proof.address(), proof.id(), true, proof.nonce(), channel);
    link.replace(acceptor);
    return link;
  }

  private void replace(ChannelHandler handshake) {
    Frames.raiseLimit(channel, limit);
    channel.pipeline().replace(handshake, "link", this);
  }

  /** Returns whether both sides have completed the handshake, and frames may be sent. */
  boolean isOpen() {
    return state == State.OPEN || state == State.RESUMING;
  }

  boolean isResuming() {
    return state == State.RESUMING;
  }

  boolean isConnected() {
    return state == State.OPEN;
  }

  /** Returns the number of frames that have arrived and count. */
  long received() {
    return received;
  }

  boolean hasEnded() {
    return state == State.ENDED;
  }

  /** Returns when the last bytes arrived, also those of an incomplete frame. */
  long lastReceivedNanos() {
    return state == State.RESUMING ? lastReceivedNanos : Frames.lastReceivedNanos(channel);
  }

  // ---- sending ----

  /** Sends a frame, unless this side has sent its goodbye. */
  void send(BootstrapFrame frame) {
    if (sentGoodbye || state == State.ENDED) {
      return;
    }
    if (frame instanceof Propose propose) {
      proposedHere = propose.roster();
    }
    boolean isKnown = frame instanceof Formed formed && formed.roster() == proposedHere;
    write(isKnown ? new FormedAsProposed(proposedHere.nonce()) : frame);
  }

  /** Sends a message; completes {@code done} when the network has it. */
  void send(Data data, int rank, CompletableFuture<Void> done) {
    if (sentGoodbye || state == State.ENDED) {
      done.completeExceptionally(unsent(rank));
      return;
    }
    write(data)
        .addListener(
            written -> {
              if (written.isSuccess() || isOpen()) {
                done.complete(null);
              } else {
                done.completeExceptionally(unsent(rank));
              }
            });
  }

  static RemoteFailure unsent(int rank) {
    return RemoteFailure.of(rank, "rank %s has left or died; nothing more can be sent to it", rank);
  }

  /** Sends the last frame; the other side closes the socket when it has read it. */
  void sendGoodbye() {
    send(new Goodbye());
    sentGoodbye = true;
    if (state == State.RESUMING) {
      end();
    } else if (state != State.ENDED) {
      state = State.LEAVING;
    }
  }

  void close() {
    sentGoodbye = true;
    channel.close();
  }

  private ChannelFuture write(BootstrapFrame frame) {
    if (isHeartbeat(frame) && !channel.isWritable()) {
      // The queued bytes serve as a heartbeat once the other side reads them.
      return channel.newSucceededFuture();
    }
    if (counts(frame)) {
      sent++;
      kept.add(frame);
      keptBytes += bytes(frame);
      while (keptBytes > limit) {
        forget(); // a loss of the socket before the other side confirms it is final
      }
    }
    return state == State.RESUMING ? channel.newSucceededFuture() : channel.writeAndFlush(frame);
  }

  private static boolean counts(BootstrapFrame frame) {
    return !isHeartbeat(frame) && !(frame instanceof Confirm);
  }

  private static boolean isHeartbeat(BootstrapFrame frame) {
    return frame instanceof Beat || frame instanceof Waiting;
  }

  private static int bytes(BootstrapFrame frame) {
    return FRAME_OVERHEAD + (frame instanceof Data data ? data.message().length : 0);
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

  // ---- receiving ----

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (ctx.channel() != channel) {
      return; // the other side sends it again
    }
    if (frame instanceof Confirm confirm) {
      if (confirm.received() > sent) {
        violate("it confirms frames that were not sent");
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
    if (frame instanceof Goodbye) {
      receivedGoodbye = true;
      state = State.LEAVING;
      links.left(this);
      ctx.close();
    } else if (frame instanceof Attach && state == State.ACCEPTED) {
      state = State.OPEN;
      links.attached(this);
    } else if (state == State.ACCEPTED || !links.received(this, expanded(frame))) {
      violate("unexpected " + frame.getClass().getSimpleName());
    }
  }

  private BootstrapFrame expanded(BootstrapFrame frame) {
    if (frame instanceof Propose propose) {
      proposedThere = propose.roster();
    }
    return frame instanceof FormedAsProposed formed && formed.roster().equals(proposedThere.nonce())
        ? new Formed(proposedThere)
        : frame;
  }

  private void violate(String problem) {
    if (isOpen()) {
      links.job.messages.violated(peer, problem);
    }
    sentGoodbye = true; // such a link is not resumed
    channel.close();
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    if (cause instanceof IOException || ctx.channel() != channel) {
      ctx.close(); // what it means is decided when the channel has closed
    } else {
      violate(Frames.describe(cause));
    }
  }

  // ---- the loss of the socket ----

  private boolean mayResume() {
    return !sentGoodbye && !receivedGoodbye && links.mayResume(peer);
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    if (ctx.channel() != channel || state == State.RESUMING || state == State.ENDED) {
      return;
    }
    if (state == State.OPEN && mayResume()) {
      lastReceivedNanos = Frames.lastReceivedNanos(channel);
      state = State.RESUMING;
      backoff = new Backoff();
      // No warning yet: its process may have ended.
      LOG.debug("a connection of the bootstrap was lost: {}", channel);
      tryAgain();
    } else {
      end();
    }
  }

  private void tryAgain() {
    if (state != State.RESUMING) {
      return;
    }
    if (mayResume()) {
      links.job.sockets.connect(peer, peerId, new Resume(session, received), this);
    } else {
      end();
    }
  }

  private void later() {
    backoff.schedule(links.job.sockets.loop, this::tryAgain);
  }

  private void end() {
    if (state != State.ENDED) {
      boolean isBroken = state == State.RESUMING && mayResume();
      state = State.ENDED;
      links.ended(this, isBroken);
    }
  }

  private void endDead() {
    if (state == State.RESUMING) {
      state = State.ENDED;
      links.ended(this, false);
      links.job.died(peer);
    }
  }

  /** Returns whether a connector may resume this link: all frames that it needs are kept. */
  boolean canResume(Resume other) {
    return isOpen()
        && mayResume()
        && Arrays.equals(other.session(), session)
        && confirmed(other.received());
  }

  /** Continues on another connection. */
  void resume(Channel next, ChannelHandler handshake) {
    Channel before = channel;
    channel = next;
    state = State.OPEN;
    before.close(); // this side may not have noticed the loss
    replace(handshake);
    confirmedFrames = received;
    unconfirmedBytes = 0;
    kept.forEach(channel::writeAndFlush);
    REPLACED.warn("a connection of the bootstrap was lost and is replaced: " + next);
    links.drained();
  }

  // ---- resuming ----

  @Override
  public void admitted(Channel next, Handshake.Connector connector) {
    long arrived = connector.verdict.received();
    if (!incoming && state == State.RESUMING && mayResume() && confirmed(arrived)) {
      resume(next, connector);
    } else {
      next.close();
      failed(Loss.REFUSED, "");
    }
  }

  @Override
  public void failed(Loss loss, String why) {
    if (loss.isGone()) {
      endDead();
    } else if (loss == Loss.REFUSED && !incoming) {
      end();
    } else {
      later();
    }
  }
}
