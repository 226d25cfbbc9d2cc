// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.trace.JobDump;
import io.netty.channel.Channel;
import io.netty.channel.group.ChannelGroup;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** One rank's connections with the other ranks. Only on the event loop. */
final class PeerLinks extends Gate {
  private static final long WATCH_NANOS = TimeUnit.SECONDS.toNanos(1);

  final TcpBootstrap bootstrap;
  private final ChannelGroup channels;
  private final InetAddress from;
  final int frameLimit;
  private final Map<Integer, PeerLink.Outgoing> outgoing = new HashMap<>();
  private final Map<Integer, PeerLink> incoming = new HashMap<>();
  private final CompletableFuture<SessionKey> key = new CompletableFuture<>();
  private CompletableFuture<InetSocketAddress> listening;
  private List<Member> members;
  private CompletableFuture<Void> flushed;
  private JobFile.Written entry;
  private boolean leaving;
  private boolean rootDied;
  private boolean rootLeft;

  /**
   * @param from the local address of connections, or null for any
   */
  PeerLinks(TcpBootstrap bootstrap, ChannelGroup channels, InetAddress from, int messageLimit) {
    this.bootstrap = bootstrap;
    this.channels = channels;
    this.from = from;
    this.frameLimit = BootstrapFrameCodec.frameLimit(messageLimit);
  }

  /** Opens the port for the other ranks, if it is not open, and returns its address. */
  CompletableFuture<InetSocketAddress> listen(InetAddress local) {
    if (listening == null) {
      InetSocketAddress anyPort = new InetSocketAddress(local, 0);
      listening =
          Frames.listen(
                  bootstrap.loop, anyPort, this, channels, bootstrap.describe(), bootstrap.rank())
              .thenApply(bound -> (InetSocketAddress) bound.localAddress());
    }
    return listening;
  }

  /** Sets the addresses of all ranks, and continues the handshakes that wait for the key. */
  void begin(SessionKey jobKey, List<Member> all) {
    members = all;
    key.complete(jobKey);
    entry = JobFile.write(bootstrap, jobKey.of(LinkKind.INQUIRY), all);
  }

  /** Requests a report from every rank, including this one, each over a separate connection. */
  CompletableFuture<JobDump> requestDump(boolean all, Duration limit) {
    return new DumpClient(bootstrap.loop, channels, from, limit, all)
        .askAll(jobKey().of(LinkKind.INQUIRY), members);
  }

  /** Returns the key of the connections between the ranks; null before {@link #begin}. */
  SessionKey jobKey() {
    return key.getNow(null);
  }

  private PeerLink.Outgoing to(int peer) {
    return outgoing.computeIfAbsent(peer, unused -> new PeerLink.Outgoing(this, peer));
  }

  void connect(LinkKind kind, int peer, Handshake.Outcome outcome) {
    new Handshake.Connector(jobKey(), kind, bootstrap.rank(), bootstrap.nRanks(), peer, outcome)
        .connect(bootstrap.loop, from, members.get(peer).address(), channels);
  }

  void send(int peer, Data data, CompletableFuture<Void> done) {
    to(peer).send(data, done);
  }

  boolean mayStillDeliver(int peer) {
    PeerLink.Outgoing own = outgoing.get(peer);
    return incoming.containsKey(peer) || (own != null && own.link() != null && own.link().isOpen());
  }

  /** Sends a frame to all ranks that are connected. */
  void sendAll(BootstrapFrame news) {
    incoming.values().forEach(link -> link.send(news));
    for (PeerLink.Outgoing each : outgoing.values()) {
      if (each.link() != null && !each.link().incoming()) {
        each.link().send(news);
      }
    }
  }

  /** Fails messages that wait for a connection with a rank that has left. */
  void onDeparture(int peer) {
    PeerLink.Outgoing link = outgoing.get(peer);
    if (link != null) {
      link.shut(RemoteFailure.of(peer, "%s: rank %s has left", bootstrap.describe(), peer));
    }
    queueDrained();
  }

  /**
   * Called when the root has left or died: sends the departed ranks to the others, and begins to
   * watch them.
   */
  void replaceRoot(boolean orderly) {
    rootDied = !orderly;
    rootLeft = orderly;
    List<Integer> known =
        IntStream.range(0, bootstrap.nRanks()).filter(bootstrap::hasDeparted).boxed().toList();
    if (!known.isEmpty()) {
      sendAll(new Departed(known));
    }
    watchNext();
  }

  /**
   * Without the root, ranks watch each other: each keeps a connection with the next that has not
   * left, so that every death is noticed and reported to all ranks.
   */
  void watchNext() {
    int n = bootstrap.nRanks();
    for (int step = 1; step < n && !leaving; step++) {
      int peer = (bootstrap.rank() + step) % n;
      if (!bootstrap.hasDeparted(peer)) {
        to(peer).open(WATCH_NANOS);
        return;
      }
    }
  }

  /**
   * Probes which ranks have left. After the root has left, departures are not announced. Live ranks
   * still accept connections; a rank that refuses has left or died.
   *
   * @return completes when all have answered, or after a second
   */
  CompletableFuture<Void> probeDepartures() {
    CompletableFuture<?>[] answers =
        IntStream.range(0, rootLeft ? bootstrap.nRanks() : 0)
            .filter(peer -> peer != bootstrap.rank() && !bootstrap.hasDeparted(peer))
            .mapToObj(this::ask)
            .toArray(CompletableFuture<?>[]::new);
    CompletableFuture<Void> learned = CompletableFuture.allOf(answers);
    bootstrap.loop.schedule(() -> learned.complete(null), WATCH_NANOS, TimeUnit.NANOSECONDS);
    return learned;
  }

  private CompletableFuture<Void> ask(int peer) {
    CompletableFuture<Void> answered = new CompletableFuture<>();
    probe(
        peer,
        () -> answered.complete(null),
        () -> {
          bootstrap.departed(peer);
          answered.complete(null);
        });
    return answered;
  }

  /** Probes whether a rank still listens. */
  void probe(int peer, Runnable perhaps, Runnable no) {
    Frames.probe(bootstrap.loop, members.get(peer).address(), channels, perhaps, no);
  }

  // ---- leaving ----

  boolean isLeaving() {
    return leaving;
  }

  /** Returns a future that completes when nothing waits for a connection. */
  CompletableFuture<Void> flushed() {
    flushed = new CompletableFuture<>();
    queueDrained();
    return flushed;
  }

  boolean isFlushing() {
    return flushed != null;
  }

  /** Called when a connection has no queue any more. */
  void queueDrained() {
    if (flushed != null
        && !(bootstrap.control.isResuming() && answers(bootstrap.control.rootHost()))
        && outgoing.entrySet().stream()
            .allMatch(each -> each.getValue().idle() || !answers(each.getKey()))) {
      flushed.complete(null);
    }
  }

  /**
   * Returns whether leaving waits for the connection with a rank: a silent one would take too long.
   */
  private boolean answers(int peer) {
    return !bootstrap.silentRanks().contains(peer);
  }

  /** Sends a goodbye on every connection; the other sides close them. */
  void sendGoodbye() {
    stopSending("has closed");
    for (PeerLink.Outgoing each : outgoing.values()) {
      if (each.link() != null) {
        each.link().sendGoodbye();
      }
    }
    incoming.values().forEach(PeerLink::sendGoodbye);
  }

  /** Fails queued messages. From now on the loss of a connection is no failure. */
  void stopSending(String why) {
    leaving = true;
    if (entry != null) {
      entry.close();
      entry = null;
    }
    Aborted reason = Aborted.of(bootstrap.rank(), "%s %s", bootstrap.describe(), why);
    outgoing.values().forEach(each -> each.shut(reason));
  }

  // ---- ranks that connect ----

  @Override
  CompletableFuture<SessionKey> key() {
    return key;
  }

  @Override
  Admission judge(Proof proof) {
    boolean resumes = proof.kind() == LinkKind.RESUME;
    if (proof.nRanks() != bootstrap.nRanks() || (proof.kind() != LinkKind.PEER && !resumes)) {
      return Admission.WRONG_RANK_COUNT;
    }
    int peer = proof.rank();
    boolean wrong = peer < 0 || peer >= bootstrap.nRanks() || peer == bootstrap.rank();
    if (wrong || proof.target() != bootstrap.rank()) {
      return Admission.RANK_OUT_OF_RANGE;
    }
    PeerLink present = incoming.get(peer);
    boolean taken = present != null && present.isAttached() && !resumes;
    if (leaving || bootstrap.hasDeparted(peer) || taken) {
      return Admission.DUPLICATE_RANK;
    }
    return Admission.WELCOME;
  }

  @Override
  BootstrapFrame answer(boolean all) {
    return bootstrap.reports.answer(all);
  }

  @Override
  int expectedRanks() {
    return bootstrap.nRanks();
  }

  @Override
  void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    if (proof.kind() == LinkKind.RESUME) {
      ResumingSession.accept(channel, acceptor, incoming.get(proof.rank()));
      return;
    }
    PeerLink link = new PeerLink(this, proof.rank(), true, proof.nonce(), channel);
    PeerLink abandoned = incoming.put(proof.rank(), link);
    if (abandoned != null) {
      abandoned.close();
    }
    link.replace(acceptor, frameLimit);
  }

  // ---- what connections report ----

  void attached(PeerLink link) {
    to(link.peer()).adopt(link);
  }

  /**
   * Called if a watched rank can't be reached. If the root has died, the rank may have died as
   * well, so the job fails. If the root has left in good order, the rank has more likely left, too.
   */
  void unreachable(int peer) {
    if (rootDied && !leaving && !isFlushing() && !bootstrap.hasDeparted(peer)) {
      bootstrap.fail(
          RemoteFailure.of(
              peer,
              "%s: the root has died, and rank %s can't be reached",
              bootstrap.describe(),
              peer));
    }
  }

  /** Called when a connection is closed; fails the job unless it closed in good order. */
  void closed(PeerLink link) {
    int peer = link.peer();
    if (link.incoming()) {
      incoming.remove(peer, link);
    }
    if (!leaving && !link.orderly() && !bootstrap.hasDeparted(peer)) {
      bootstrap.fail(
          RemoteFailure.of(
              peer,
              "rank %s died: its connection with %s ended without a goodbye",
              peer,
              bootstrap.describe()));
    }
    bootstrap.streamMayHaveEnded(peer);
    queueDrained();
  }
}
