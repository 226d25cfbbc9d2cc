// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
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
import io.netty.channel.EventLoop;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The root at which ranks register. It collects their addresses and sends them to all ranks when
 * the last has registered. From then on it notices ranks that die, leave or fall silent, and
 * notifies the others. State is accessed only on the event loop.
 */
final class BootstrapRoot extends Gate {
  private static final Logger LOG = LoggerFactory.getLogger(BootstrapRoot.class);
  private static final Duration UNUSED = Duration.ofMinutes(10);

  private final SharedEventLoop thread = SharedEventLoop.acquire();
  final EventLoop loop = thread.loop();
  final DefaultChannelGroup channels = new DefaultChannelGroup(loop, true);
  private final CompletableFuture<SessionKey> key;
  private final byte[] jobId = SessionKey.nonce(BootstrapFrameCodec.JOB_ID_BYTES);
  private final HeartbeatClock clock;
  private final Duration patience;
  final AtomicBoolean finished = new AtomicBoolean();
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final Map<Integer, RootSession> sessions = new TreeMap<>();
  private final Map<Integer, TcpBootstrap> hosts = new HashMap<>();
  private final BitSet cameOnce = new BitSet();
  private final BitSet departed = new BitSet();
  private final BitSet departedSent = new BitSet();
  private Channel listener;
  private ScheduledFuture<?> ticks;
  private ScheduledFuture<?> unused;
  private int nRanks;
  private int users;
  private int rootHost = -1;
  private Peers peers; // null until all ranks have registered
  private Failed failure; // null while the job has not failed
  private boolean leaving;
  private boolean waitingChanged;
  private List<Integer> silent = List.of();

  /**
   * @param nRanks the number of ranks, or 0 to adopt the number that the first rank sends
   */
  BootstrapRoot(SessionKey key, int nRanks, BootstrapOptions options) {
    this(key, nRanks, options, UNUSED);
  }

  /** Creates a root that closes after a time without a connected rank. */
  BootstrapRoot(SessionKey key, int nRanks, BootstrapOptions options, Duration patience) {
    this.key = CompletableFuture.completedFuture(key);
    this.patience = patience;
    this.nRanks = nRanks;
    this.clock = new HeartbeatClock(options.heartbeatInterval());
  }

  /** Opens the port. Completes with the address, or fails and leaves nothing. */
  CompletableFuture<InetSocketAddress> open(InetSocketAddress address) {
    return Frames.listen(loop, address, this, channels, "the root", TransportFailure.NO_RANK)
        .thenApply(this::opened)
        .whenComplete(
            (at, failure) -> {
              if (failure != null) {
                finish();
              }
            });
  }

  private InetSocketAddress opened(Channel bound) {
    listener = bound;
    long nanos = clock.intervalNanos();
    ticks = loop.scheduleAtFixedRate(this::tick, nanos, nanos, TimeUnit.NANOSECONDS);
    awaitRanks();
    return (InetSocketAddress) bound.localAddress();
  }

  /** Closes the root if no rank is connected for {@code patience} before all have registered. */
  private void awaitRanks() {
    if (unused != null) {
      unused.cancel(false);
    }
    unused = loop.schedule(this::closeUnused, patience.toNanos(), TimeUnit.NANOSECONDS);
  }

  private void closeUnused() {
    if (isUnused()) {
      LOG.warn("no rank connects to the root at {}; it closes", listener.localAddress());
      finish();
    }
  }

  private boolean isUnused() {
    return sessions.isEmpty() && users == 0;
  }

  /** Closes the root if no rank is connected and no bootstrap of this process uses it. */
  void killUnused() {
    if (isUnused()) {
      kill();
    }
  }

  /** Returns a future that completes when the root has closed, by itself or by {@link #leave}. */
  CompletableFuture<Void> ended() {
    return ended;
  }

  /** Adds a bootstrap of this process: the root stays open until that has left. */
  void use() {
    users++;
  }

  /**
   * Removes a bootstrap of this process; the root closes with the last of them, in good order.
   *
   * @return completes when the root has closed, or at once if other bootstraps still use it
   */
  CompletableFuture<Void> leave(int rank) {
    if (peers != null) {
      departed.set(rank);
      sendDeparted();
    }
    users--;
    if (users > 0) {
      return CompletableFuture.completedFuture(null);
    }
    leaving = true;
    stopListening();
    sessions.values().forEach(FrameSession::sendGoodbye);
    if (sessions.isEmpty()) {
      finish();
    } else {
      loop.schedule(this::finish, FrameSession.graceMillis(silent), TimeUnit.MILLISECONDS);
    }
    return ended;
  }

  /** Adds a bootstrap of this process: if its rank hosts the root, messages for it arrive here. */
  void host(TcpBootstrap bootstrap) {
    hosts.put(bootstrap.rank(), bootstrap);
  }

  /** Sends a message of the rank that hosts the root. */
  void send(int peer, Data data, CompletableFuture<Void> done) {
    RootSession session = sessions.get(peer);
    if (session == null) {
      done.completeExceptionally(FrameSession.unsent(peer));
    } else {
      session.send(data, peer, done);
    }
  }

  /** Closes the port once the job is over: surviving ranks may want to listen at this address. */
  void stopListening() {
    boolean over = leaving || (peers != null && failure != null);
    boolean sought = sessions.values().stream().anyMatch(ResumingSession::isResuming);
    if (over && !sought && listener != null) {
      listener.close();
    }
  }

  /** Closes at once and sends nothing, as if the process had died. */
  void kill() {
    finish();
  }

  private void finish() {
    leaving = true;
    if (ticks != null) {
      ticks.cancel(false);
      unused.cancel(false);
    }
    if (finished.compareAndSet(false, true)) {
      channels
          .close()
          .addListener(all -> thread.leave().whenComplete((left, failure) -> ended.complete(null)));
    }
  }

  // ---- ranks that connect ----

  @Override
  CompletableFuture<SessionKey> key() {
    return key;
  }

  @Override
  Admission judge(Proof proof) {
    if (proof.kind() == LinkKind.RESUME && sessions.containsKey(proof.rank())) {
      return Admission.WELCOME;
    }
    if (peers != null || leaving || proof.kind() != LinkKind.ROOT) {
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
  BootstrapFrame answer(boolean all) {
    return peers == null ? new Waiting(missing()) : peers;
  }

  @Override
  int expectedRanks() {
    return nRanks;
  }

  @Override
  void ranOut(String why) {
    if (peers == null) {
      String text = "the root can't accept ranks: " + why;
      failed(new Failed(ErrorCode.TRANSPORT_FAILURE, rootHost, text));
    }
  }

  @Override
  void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    if (proof.kind() == LinkKind.RESUME) {
      ResumingSession.accept(channel, acceptor, sessions.get(proof.rank()));
      return;
    }
    RootSession session = new RootSession(this, proof.rank(), proof.nonce(), channel);
    sessions.put(proof.rank(), session);
    session.replace(acceptor, BootstrapFrameCodec.HANDSHAKE_LIMIT + 3 * 4096);
  }

  // ---- what sessions report ----

  void registered(RootSession session) {
    if (failure != null) {
      session.send(failure);
      return;
    }
    cameOnce.set(session.rank);
    if (session.register.hostsRoot() && rootHost < 0) {
      rootHost = session.rank;
    }
    List<Integer> missing = missing();
    if (!missing.isEmpty()) {
      waitingChanged = true;
      session.send(new Waiting(missing));
      return;
    }
    List<Member> members = sessions.values().stream().map(each -> each.register.member()).toList();
    String rootProcess = rootHost < 0 ? "" : sessions.get(rootHost).register.process();
    peers = new Peers(jobId, rootHost, rootProcess, members);
    TcpBootstrap host = hosts.get(rootHost);
    if (host != null) {
      host.control.formed(peers); // first: messages for it may arrive now
      sessions.values().forEach(each -> each.raiseLimit(host.links.frameLimit));
    }
    sendAllBut(rootHost, peers);
  }

  // Ranks that never registered are first: errors are attributed to them, not to ranks that gave up
  // waiting.
  private List<Integer> missing() {
    List<Integer> missing = new ArrayList<>();
    List<Integer> gaveUp = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      RootSession session = sessions.get(rank);
      if (session == null || session.register == null) {
        (cameOnce.get(rank) ? gaveUp : missing).add(rank);
      }
    }
    missing.addAll(gaveUp);
    return missing;
  }

  /** Notifies all ranks that the job has failed. */
  void failed(Failed reason) {
    if (failure == null) {
      failure = reason;
      stopListening();
      sendAll(reason);
    }
  }

  void closed(RootSession session) {
    int rank = session.rank;
    sessions.remove(rank, session);
    stopListening();
    if (peers == null) {
      waitingChanged = true;
      if (!session.receivedGoodbye() && !leaving) {
        loop.schedule(() -> requireReturn(session), Patience.RETURN_MILLIS, TimeUnit.MILLISECONDS);
      }
    } else if (session.receivedGoodbye()) {
      departed.set(rank);
      // Usually many ranks leave at once: one frame names all of them.
      loop.execute(this::sendDeparted);
    } else if (!leaving && !departed.get(rank)) {
      failed(session.death(""));
    }
    if (sessions.isEmpty() && (leaving || (peers != null && users == 0))) {
      finish();
    } else if (sessions.isEmpty() && peers == null) {
      awaitRanks();
    }
  }

  /**
   * Delivers a message for the rank that hosts the root; returns false if this process has no such
   * rank.
   */
  boolean arrived(int sender, Data data) {
    TcpBootstrap host = peers != null ? hosts.get(rootHost) : null;
    if (host != null) {
      host.arrived(data.key(sender), data.message());
    }
    return host != null;
  }

  /** Fails the set-up if a rank whose connection was lost has not reconnected. */
  private void requireReturn(RootSession lost) {
    if (peers == null && !leaving && !sessions.containsKey(lost.rank)) {
      failed(lost.death(" during initialize"));
    }
  }

  private void sendDeparted() {
    BitSet news = (BitSet) departed.clone();
    news.andNot(departedSent);
    if (!news.isEmpty()) {
      departedSent.or(news);
      sendAll(new Departed(news.stream().boxed().toList()));
    }
  }

  private void sendAll(BootstrapFrame frame) {
    sendAllBut(TransportFailure.NO_RANK, frame);
  }

  private void sendAllBut(int rank, BootstrapFrame frame) {
    // A copy: a write that fails may close its session here and now.
    for (RootSession session : List.copyOf(sessions.values())) {
      if (session.rank != rank) {
        session.send(frame);
      }
    }
  }

  private void tick() {
    if (peers == null && waitingChanged) {
      waitingChanged = false;
      sendAll(new Waiting(missing()));
    }
    sendAll(new Ping());
    if (clock.stalled()) {
      sessions.forEach((rank, session) -> session.restartSilenceUnless(silent.contains(rank)));
    } else if (peers != null) {
      long since = clock.silenceLimit();
      List<Integer> now =
          sessions.values().stream()
              .filter(session -> session.isSilentSince(since))
              .map(session -> session.rank)
              .toList();
      if (!now.equals(silent)) {
        silent = now;
        sendAll(new Silent(now));
      }
    }
  }
}
