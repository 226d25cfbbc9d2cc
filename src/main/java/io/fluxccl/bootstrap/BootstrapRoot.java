package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where ranks meet. It collects their addresses, tells all of them when the last has come, and from
 * then on notices who dies, leaves or falls silent. State is of the event loop only.
 */
final class BootstrapRoot extends HandshakeAcceptor.Gate {
  private static final Logger LOG = LoggerFactory.getLogger(BootstrapRoot.class);
  private static final long GRACE_MILLIS = 1000;
  private static final Duration UNUSED = Duration.ofMinutes(10);

  private final SharedEventLoop.Lease lease = SharedEventLoop.acquire();
  private final EventLoop loop = lease.loop();
  private final DefaultChannelGroup channels = new DefaultChannelGroup(loop, true);
  private final SessionKey key;
  private final byte[] jobId = SessionKey.nonce(BootstrapFrameCodec.JOB_ID_BYTES);
  private final HeartbeatClock clock;
  private final Duration patience;
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final Map<Integer, RootSession> sessions = new TreeMap<>();
  private final BitSet cameOnce = new BitSet();
  private final BitSet departed = new BitSet();
  private final BitSet departedTold = new BitSet();
  private Channel listener;
  private ScheduledFuture<?> ticks;
  private ScheduledFuture<?> unused;
  private int nRanks;
  private int users;
  private int rootHost = -1;
  private boolean formed;
  private boolean failed;
  private boolean leaving;
  private boolean waitingChanged;
  private List<Integer> silent = List.of();

  /**
   * @param nRanks how many to wait for, or 0 to believe the first that comes
   */
  BootstrapRoot(SessionKey key, int nRanks, BootstrapOptions options) {
    this(key, nRanks, options, UNUSED);
  }

  /**
   * @param patience how long it stays while nobody is there
   */
  BootstrapRoot(SessionKey key, int nRanks, BootstrapOptions options, Duration patience) {
    this.key = key;
    this.patience = patience;
    this.nRanks = nRanks;
    this.clock = new HeartbeatClock(options.heartbeatInterval());
  }

  /** Opens the port. Completes with the address, or fails and leaves nothing. */
  CompletableFuture<InetSocketAddress> open(InetSocketAddress address) {
    CompletableFuture<InetSocketAddress> opened = new CompletableFuture<>();
    Frames.listen(loop, address, this, channels)
        .addListener(
            (ChannelFuture bound) -> {
              if (!bound.isSuccess()) {
                finish();
                opened.completeExceptionally(
                    new TransportFailure(
                        TransportFailure.NO_RANK,
                        "the root can't listen at "
                            + address
                            + ": "
                            + Frames.describe(bound.cause())
                            + "; choose a free port and an address of this host",
                        bound.cause()));
                return;
              }
              listener = bound.channel();
              startTicks();
              opened.complete((InetSocketAddress) listener.localAddress());
            });
    return opened;
  }

  private void startTicks() {
    long nanos = clock.intervalNanos();
    ticks = loop.scheduleAtFixedRate(this::tick, nanos, nanos, TimeUnit.NANOSECONDS);
    awaitSomebody();
  }

  /** Lets it end, should nobody be there for long before all have come. */
  private void awaitSomebody() {
    if (unused != null) {
      unused.cancel(false);
    }
    unused =
        loop.schedule(
            () -> {
              if (sessions.isEmpty() && users == 0) {
                LOG.warn("nobody comes to the root at {}; it closes", listener.localAddress());
                finish();
              }
            },
            patience.toNanos(),
            TimeUnit.NANOSECONDS);
  }

  /** Completes when it has closed, by itself or by {@link #leave}. */
  CompletableFuture<Void> ended() {
    return ended;
  }

  /** A bootstrap of this process relies on it: it stays until that has left. */
  void use() {
    users++;
  }

  /**
   * A bootstrap of this process has left; with the last of them goes the root, in good order.
   *
   * @return completes when it is gone, or at once when it stays for others
   */
  CompletableFuture<Void> leave(int rank) {
    if (formed) {
      departed.set(rank);
      tellDeparted();
    }
    users--;
    if (users > 0) {
      return CompletableFuture.completedFuture(null);
    }
    leaving = true;
    if (listener != null) {
      listener.close();
    }
    sessions.values().forEach(RootSession::sayGoodbye);
    if (sessions.isEmpty()) {
      finish();
    } else {
      loop.schedule(this::finish, GRACE_MILLIS, TimeUnit.MILLISECONDS);
    }
    return ended;
  }

  boolean inEventLoop() {
    return loop.inEventLoop();
  }

  /** Closes at once, without a word: as if the process had died. */
  void kill() {
    failed = true;
    leaving = true;
    finish();
  }

  private void finish() {
    leaving = true;
    if (ticks != null) {
      ticks.cancel(false);
      unused.cancel(false);
    }
    channels
        .close()
        .addListener(
            closed -> lease.release().whenComplete((released, failure) -> ended.complete(null)));
  }

  // ---- who knocks ----

  @Override
  SessionKey key() {
    return key;
  }

  @Override
  void park(ChannelHandlerContext ctx, HandshakeAcceptor acceptor) {
    throw new IllegalStateException("the root knows its key");
  }

  @Override
  Admission judge(Proof proof) {
    if (formed || leaving || proof.kind() != LinkKind.ROOT) {
      return Admission.JOB_COMPLETE;
    }
    if (proof.nRanks() < 1 || proof.nRanks() > BootstrapFrameCodec.MAX_RANKS) {
      return Admission.WRONG_RANK_COUNT;
    }
    if (nRanks == 0) {
      nRanks = proof.nRanks();
    }
    if (proof.nRanks() != nRanks) {
      return Admission.WRONG_RANK_COUNT;
    }
    if (proof.rank() < 0 || proof.rank() >= nRanks) {
      return Admission.RANK_OUT_OF_RANGE;
    }
    return sessions.containsKey(proof.rank()) ? Admission.DUPLICATE_RANK : Admission.WELCOME;
  }

  @Override
  int detail() {
    return nRanks;
  }

  @Override
  void admitted(Channel channel, HandshakeAcceptor acceptor, Proof proof) {
    RootSession session = new RootSession(this, proof.rank(), channel);
    sessions.put(proof.rank(), session);
    Frames.raiseLimit(channel, BootstrapFrameCodec.HANDSHAKE_LIMIT + 3 * 4096);
    channel.pipeline().replace(acceptor, "session", session);
  }

  // ---- what sessions report ----

  void registered(RootSession session) {
    cameOnce.set(session.rank());
    if (session.register().hostsRoot() && rootHost < 0) {
      rootHost = session.rank();
    }
    List<Integer> missing = missing();
    if (!missing.isEmpty()) {
      waitingChanged = true;
      session.tell(new Waiting(missing));
      return;
    }
    formed = true;
    List<Member> members = new ArrayList<>(nRanks);
    sessions.values().forEach(each -> members.add(each.register().member()));
    tellAll(new Peers(jobId, rootHost, members));
    LOG.debug("all {} ranks have come to {}", nRanks, listener.localAddress());
  }

  // Those that never came first: they are to blame, not those that gave up waiting for them.
  private List<Integer> missing() {
    List<Integer> missing = new ArrayList<>();
    List<Integer> gaveUp = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      RootSession session = sessions.get(rank);
      if (session == null || session.register() == null) {
        (cameOnce.get(rank) ? gaveUp : missing).add(rank);
      }
    }
    missing.addAll(gaveUp);
    return missing;
  }

  void failed(Failed reason) {
    if (!failed) {
      failed = true;
      tellAll(reason);
    }
  }

  void closed(RootSession session) {
    sessions.remove(session.rank(), session);
    if (!formed) {
      waitingChanged = true;
    } else if (session.heardGoodbye()) {
      departed.set(session.rank());
      // Many leave at once as a rule: one frame tells of all of them.
      loop.execute(this::tellDeparted);
    } else if (!leaving && !departed.get(session.rank())) {
      failed(
          new Failed(
              ErrorCode.REMOTE_FAILURE,
              session.rank(),
              "rank "
                  + session.rank()
                  + " died: its connection with the root ended without a goodbye"));
    }
    if (sessions.isEmpty() && (leaving || (formed && users == 0))) {
      finish();
    } else if (sessions.isEmpty() && !formed) {
      awaitSomebody();
    }
  }

  private void tellDeparted() {
    BitSet news = (BitSet) departed.clone();
    news.andNot(departedTold);
    if (!news.isEmpty()) {
      departedTold.or(news);
      tellAll(new Departed(news.stream().boxed().toList()));
    }
  }

  private void tellAll(BootstrapFrame frame) {
    // A copy: a write that fails may close its session here and now.
    Collection<RootSession> all = List.copyOf(sessions.values());
    all.forEach(session -> session.tell(frame));
  }

  private void tick() {
    if (!formed && waitingChanged) {
      waitingChanged = false;
      tellAll(new Waiting(missing()));
    }
    tellAll(new Ping());
    if (clock.stalled()) {
      sessions.values().forEach(RootSession::excuseSilence);
    } else if (formed) {
      long since = clock.silenceLimit();
      List<Integer> now =
          sessions.values().stream()
              .filter(session -> session.isSilentSince(since))
              .map(RootSession::rank)
              .toList();
      if (!now.equals(silent)) {
        silent = now;
        tellAll(new Silent(now));
      }
    }
  }
}
