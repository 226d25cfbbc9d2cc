// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.fluxccl.concurrent.RankLog;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A rank's connection with the root: retried until it succeeds, then kept open for heartbeats. The
 * root reports the silent ranks over it. Only on the event loop.
 */
final class ControlConnection implements Handshake.Outcome {
  private static final Logger LOG = LoggerFactory.getLogger(ControlConnection.class);
  private static final long FIRST_BACKOFF_MILLIS = 10;
  private static final long MAX_BACKOFF_MILLIS = 200;

  private final TcpBootstrap bootstrap;
  private final Rendezvous rendezvous;
  private final HeartbeatClock clock;
  private final Patience patience;

  private Handshake.Connector connector;
  private Session session;
  private boolean formed;
  private boolean stopped;
  private boolean hostLeft;
  private int losses;
  private long backoffMillis = FIRST_BACKOFF_MILLIS;
  private List<Integer> missing = List.of();
  private String trouble = "no answer yet";
  private int rootHost = FluxCclException.NO_RANK;
  private String rootProcess = "";
  private ScheduledFuture<?> ticks;
  private List<Integer> silent = List.of();

  ControlConnection(TcpBootstrap bootstrap, Rendezvous rendezvous, Duration heartbeatInterval) {
    this.bootstrap = bootstrap;
    this.rendezvous = rendezvous;
    this.clock = new HeartbeatClock(heartbeatInterval);
    this.patience = new Patience(bootstrap.options().timeout());
  }

  void connect() {
    if (!stopped) {
      attempt(LinkKind.ROOT, this);
    }
  }

  private void attempt(LinkKind kind, Handshake.Outcome outcome) {
    connector =
        new Handshake.Connector(
            rendezvous.key(), kind, bootstrap.rank(), bootstrap.nRanks(), -1, outcome);
    connector.connect(bootstrap.loop, rendezvous.from(), rendezvous.root(), bootstrap.channels());
  }

  boolean isResuming() {
    return session != null && session.isResuming();
  }

  @Override
  public void admitted(Channel channel, Handshake.Connector connector) {
    if (stopped) {
      channel.close();
      return;
    }
    trouble = "it answered and closed the connection";
    session = new Session(connector.nonce, channel);
    session.replace(connector, bootstrap.links.frameLimit);
    bootstrap
        .register(((InetSocketAddress) channel.localAddress()).getAddress())
        .whenComplete(
            (register, failure) -> {
              if (failure != null) {
                bootstrap.failSetup(failure);
              } else {
                send(register);
              }
            });
  }

  @Override
  public void refused(Admission admission, int expectedRanks) {
    patience.reset();
    if (admission == Admission.WRONG_RANK_COUNT || admission == Admission.RANK_OUT_OF_RANGE) {
      bootstrap.failSetup(
          InvalidUsage.of(
              "%s is refused: the root at %s gathers %s ranks",
              bootstrap.describe(), rendezvous.root(), expectedRanks));
    } else if (admission == Admission.DUPLICATE_RANK) {
      again("another process has joined as rank " + bootstrap.rank());
    } else {
      again("its job is complete; does an earlier run still hold the port?");
    }
  }

  @Override
  public void lost(String why) {
    patience.reset();
    again(why);
  }

  @Override
  public void ranOut(String why) {
    stop();
    String text = bootstrap.describe() + ": initialize can't connect to the root: " + why;
    bootstrap.failSetup(new TransportFailure(bootstrap.rank(), text));
  }

  @Override
  public void foreign(String why) {
    String where = bootstrap.describe() + ": initialize: no root of this job is at ";
    refused(where + rendezvous.root() + ": " + why, why);
  }

  /** Logs the first refusal, and fails the set-up if refusals persist. */
  private void refused(String text, String why) {
    if (patience.begins()) {
      RankLog.line(bootstrap.rank(), () -> LOG.warn("{}", text));
    }
    if (patience.isOver()) {
      stop();
      bootstrap.failSetup(new InvalidUsage(text));
    } else {
      again(why);
    }
  }

  @Override
  public void secretMismatch() {
    String where = bootstrap.describe() + ": initialize reached the root at ";
    String why = Handshake.SECRETS_DIFFER;
    refused(where + rendezvous.root() + ": " + why, why);
  }

  /** Fails the set-up if the lost connection with the root was not restored. */
  private void requireReturn(int loss, String how) {
    if (!stopped && session == null && losses == loss) {
      stop();
      int rank = rendezvous.rootRank();
      bootstrap.failSetup(
          RemoteFailure.of(
              rank,
              "%s: initialize lost %s at %s: %s",
              bootstrap.describe(),
              rank < 0 ? "the root" : "rank " + rank + ", which hosts the root,",
              rendezvous.root(),
              how));
    }
  }

  private void again(String why) {
    trouble = why;
    if (!stopped) {
      bootstrap.loop.schedule(this::connect, backoffMillis, TimeUnit.MILLISECONDS);
      backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
    }
  }

  /** Returns the time-out of a set-up that has not completed. */
  Timeout late(long millis) {
    if (missing.isEmpty()) {
      int rootRank = rendezvous.rootRank();
      return Timeout.of(
          rootRank == bootstrap.rank() ? Timeout.NO_RANK : rootRank,
          "%s: initialize did not get through to the root at %s within %s ms: %s",
          bootstrap.describe(),
          rendezvous.root(),
          millis,
          connector.isUnanswered() ? Handshake.UNANSWERED : trouble);
    }
    return Timeout.of(
        missing.get(0),
        "%s: initialize: ranks %s did not register with the root at %s within %s ms;"
            + " were all processes started, with the same address and secret?",
        bootstrap.describe(),
        Message.describe(missing),
        rendezvous.root(),
        millis);
  }

  void send(BootstrapFrame frame) {
    if (session != null) {
      session.send(frame);
    }
  }

  /** Sends a message to the rank that hosts the root. */
  void send(Data data, CompletableFuture<Void> done) {
    session.send(data, rootHost, done);
  }

  /** Returns whether a message of the rank that hosts the root may still arrive. */
  boolean mayStillDeliver() {
    return session.isOpen() && !hostLeft;
  }

  /** Fails operations that wait for the rank that hosts the root, if that has left. */
  private void hostMayHaveLeft() {
    if (rootHost >= 0) {
      bootstrap.streamMayHaveEnded(rootHost);
    }
  }

  /** Sends the last frame and connects no more; the root closes the socket. */
  void sendGoodbye() {
    if (session != null) {
      session.sendGoodbye();
    }
    stop();
  }

  /** Stops the heartbeats. From now on the loss of the connection is no failure. */
  void stop() {
    stopped = true;
    if (ticks != null) {
      ticks.cancel(false);
    }
  }

  /** Returns whether all ranks have registered. */
  boolean formed() {
    return formed;
  }

  /** Returns the rank whose process hosts the root, or -1. */
  int rootHost() {
    return rootHost;
  }

  /** Returns the process of that rank, for messages. */
  String rootProcess() {
    return rootProcess;
  }

  private void receivedPeers(ChannelHandlerContext ctx, Peers peers) {
    if (formed || peers.members().size() != bootstrap.nRanks()) {
      ctx.close();
    } else {
      formed(peers);
    }
  }

  /** Called when all ranks have registered. */
  void formed(Peers peers) {
    if (stopped) {
      return; // it crossed the goodbye: a timer started now would never stop
    }
    formed = true;
    missing = List.of();
    rootHost = peers.rootHost();
    rootProcess = peers.rootProcess();
    long nanos = clock.intervalNanos();
    ticks = bootstrap.loop.scheduleAtFixedRate(this::tick, nanos, nanos, TimeUnit.NANOSECONDS);
    bootstrap.formed(peers);
  }

  // ---- heartbeats ----

  private void tick() {
    if (clock.stalled()) {
      session.restartSilenceUnless(bootstrap.liveness.silentRanks().contains(rootHost));
    }
    // Sent without a ping, because the root's ping may be queued after a long message.
    send(new Pong());
    findUnresponsive();
    bootstrap.liveness.check(bootstrap.options().livenessTimeout());
  }

  // A root that has left or died is not silent. Only the root knows which other ranks are silent.
  private void findUnresponsive() {
    long limit = clock.silenceLimit();
    boolean rootSilent = formed && session.isSilentSince(limit);
    bootstrap.liveness.set(
        rootSilent && rootHost >= 0 && rootHost != bootstrap.rank()
            ? List.of(rootHost)
            : silent.stream()
                .filter(each -> each != bootstrap.rank() && !bootstrap.hasDeparted(each))
                .toList(),
        limit);
  }

  private final class Session extends ResumingSession {
    Session(byte[] id, Channel channel) {
      super(id, channel);
    }

    @Override
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Ping) {
        send(new Pong());
      } else if (frame instanceof Waiting waiting) {
        missing = waiting.missing();
      } else if (frame instanceof Peers peers) {
        receivedPeers(ctx, peers);
      } else if (frame instanceof Silent news) {
        silent = news.ranks();
        findUnresponsive();
      } else if (frame instanceof Data data && rootHost >= 0) {
        bootstrap.arrived(data.key(rootHost), data.message());
      } else if (frame instanceof Departed departed) {
        hostLeft |= departed.ranks().contains(rootHost);
        departed.ranks().forEach(bootstrap::departed);
        hostMayHaveLeft();
      } else if (frame instanceof Failed failed) {
        bootstrap.fail(failed.toException());
      } else {
        ctx.close();
      }
    }

    @Override
    boolean mayResume() {
      return !stopped && !receivedGoodbye();
    }

    @Override
    void reconnectOrProbe() {
      attempt(LinkKind.RESUME, this);
    }

    @Override
    void resumed() {
      bootstrap.links.queueDrained();
    }

    @Override
    void ended() {
      silent = List.of();
      bootstrap.liveness.set(List.of(), System.nanoTime());
      if (!stopped && formed) {
        bootstrap.rootGone(receivedGoodbye());
        hostMayHaveLeft();
      } else if (!stopped) {
        String how = receivedGoodbye() ? "it has left" : "its connection ended without a goodbye";
        session = null;
        int loss = ++losses;
        bootstrap.loop.schedule(
            () -> requireReturn(loss, how), Patience.RETURN_MILLIS, TimeUnit.MILLISECONDS);
        again(trouble);
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      trouble = Frames.describe(cause);
      super.exceptionCaught(ctx, cause);
    }
  }
}
