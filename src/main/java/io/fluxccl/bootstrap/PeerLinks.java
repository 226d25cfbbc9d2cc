package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** One rank's connections with the other ranks. Only on the event loop. */
final class PeerLinks extends HandshakeAcceptor.Gate implements PeerLink.Listener {
  private static final long WATCH_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final TcpBootstrap bootstrap;
  private final ChannelGroup channels;
  private final InetAddress from;
  private final int frameLimit;
  private final Map<Integer, OutgoingLink> outgoing = new HashMap<>();
  private final Map<Integer, PeerLink> incoming = new HashMap<>();
  private final List<Runnable> parked = new ArrayList<>();
  private final CompletableFuture<Void> ring = new CompletableFuture<>();
  private SessionKey key;
  private List<Member> members;
  private CompletableFuture<Void> flushed;
  private boolean leaving;

  /**
   * @param from the local address of connections, or null for any
   */
  PeerLinks(TcpBootstrap bootstrap, ChannelGroup channels, InetAddress from, int messageLimit) {
    this.bootstrap = bootstrap;
    this.channels = channels;
    this.from = from;
    this.frameLimit = messageLimit + BootstrapFrameCodec.DATA_OVERHEAD;
  }

  EventLoop loop() {
    return bootstrap.loop;
  }

  /**
   * All ranks are known: admits those that wait at the door and joins the ring.
   *
   * @return completes when the neighbours on both sides are connected
   */
  CompletableFuture<Void> begin(SessionKey jobKey, Peers peers, long nanos) {
    key = jobKey;
    members = peers.members();
    parked.forEach(Runnable::run);
    parked.clear();
    if (bootstrap.nRanks() == 1) {
      ring.complete(null);
    } else {
      to(next()).open(nanos);
    }
    return ring;
  }

  private int next() {
    return (bootstrap.rank() + 1) % bootstrap.nRanks();
  }

  private int previous() {
    return Math.floorMod(bootstrap.rank() - 1, bootstrap.nRanks());
  }

  /** The neighbour that is not connected yet, during set-up. */
  int missingNeighbour() {
    return to(next()).link() == null ? next() : previous();
  }

  private OutgoingLink to(int peer) {
    return outgoing.computeIfAbsent(peer, unused -> new OutgoingLink(this, peer));
  }

  void dial(int peer, HandshakeConnector.Outcome outcome) {
    new HandshakeConnector(key, LinkKind.PEER, bootstrap.rank(), bootstrap.nRanks(), peer, outcome)
        .connect(loop(), from, members.get(peer).address(), channels);
  }

  void send(int peer, StreamKey streamKey, Message message, CompletableFuture<Void> done) {
    to(peer).send(streamKey, message, done);
  }

  boolean mayStillDeliver(int peer) {
    return incoming.containsKey(peer);
  }

  /** Tells all that are connected. */
  void tell(BootstrapFrame news) {
    incoming.values().forEach(link -> link.tell(news));
    for (OutgoingLink each : outgoing.values()) {
      if (each.link() != null) {
        each.link().tell(news);
      }
    }
  }

  /** A rank has left: what waits to be sent to it never will be. */
  void onDeparture(int peer) {
    OutgoingLink link = outgoing.get(peer);
    if (link != null) {
      link.shut(new RemoteFailure(peer, bootstrap.describe() + ": rank " + peer + " has left"));
    }
    queueDrained();
  }

  /**
   * With the root gone, the ranks watch each other: each keeps a connection with the next that has
   * not left, so that a death is noticed and the news finds a way.
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

  // ---- leaving ----

  /** Completes when nothing waits for a connection to be made. */
  CompletableFuture<Void> flushed() {
    flushed = new CompletableFuture<>();
    queueDrained();
    return flushed;
  }

  /** A link has no queue any more. */
  void queueDrained() {
    if (flushed != null && outgoing.values().stream().allMatch(OutgoingLink::idle)) {
      flushed.complete(null);
    }
  }

  /** Says goodbye on every link; the other sides close them. */
  void sayGoodbye() {
    leaving = true;
    parked.clear();
    Aborted reason = new Aborted(bootstrap.rank(), bootstrap.describe() + " has closed");
    for (OutgoingLink each : outgoing.values()) {
      each.shut(reason);
      if (each.link() != null) {
        each.link().sayGoodbye();
      }
    }
    incoming.values().forEach(PeerLink::sayGoodbye);
  }

  /** From now on sockets may close as they like. */
  void sayNothing() {
    leaving = true;
    Aborted reason = new Aborted(bootstrap.rank(), bootstrap.describe() + " was killed");
    outgoing.values().forEach(each -> each.shut(reason));
  }

  // ---- who knocks ----

  @Override
  SessionKey key() {
    return key;
  }

  @Override
  void park(ChannelHandlerContext ctx, HandshakeAcceptor acceptor) {
    parked.add(() -> acceptor.resume(ctx));
  }

  @Override
  Admission judge(Proof proof) {
    if (proof.nRanks() != bootstrap.nRanks() || proof.kind() != LinkKind.PEER) {
      return Admission.WRONG_RANK_COUNT;
    }
    int peer = proof.rank();
    boolean wrong = peer < 0 || peer >= bootstrap.nRanks() || peer == bootstrap.rank();
    if (wrong || proof.target() != bootstrap.rank()) {
      return Admission.RANK_OUT_OF_RANGE;
    }
    PeerLink present = incoming.get(peer);
    if (leaving || bootstrap.hasDeparted(peer) || (present != null && present.isAttached())) {
      return Admission.DUPLICATE_RANK;
    }
    return Admission.WELCOME;
  }

  @Override
  int detail() {
    return bootstrap.nRanks();
  }

  @Override
  void admitted(Channel channel, HandshakeAcceptor acceptor, Proof proof) {
    PeerLink link = new PeerLink(this, proof.rank(), true, channel);
    PeerLink abandoned = incoming.put(proof.rank(), link);
    if (abandoned != null) {
      abandoned.close();
    }
    Frames.raiseLimit(channel, frameLimit);
    channel.pipeline().replace(acceptor, "link", link);
  }

  // ---- what links report ----

  @Override
  public void attached(PeerLink link) {
    PeerLink before = incoming.get(previous());
    OutgoingLink after = outgoing.get(next());
    if (before != null && before.isAttached() && after != null && after.link() != null) {
      ring.complete(null);
    }
  }

  @Override
  public void received(PeerLink link, Data data) {
    bootstrap.arrived(
        new StreamKey(link.peer(), data.space(), data.channel(), data.sequence()), data.message());
  }

  @Override
  public void failedElsewhere(FluxCclException reason) {
    bootstrap.fail(reason);
  }

  @Override
  public void departed(List<Integer> ranks) {
    ranks.forEach(bootstrap::departed);
  }

  @Override
  public void closed(PeerLink link) {
    if (link.incoming()) {
      incoming.remove(link.peer(), link);
    }
    if (!leaving && !link.orderly() && !bootstrap.hasDeparted(link.peer())) {
      bootstrap.fail(
          new RemoteFailure(
              link.peer(),
              bootstrap.describe()
                  + " lost rank "
                  + link.peer()
                  + ": its connection ended without a goodbye"));
    }
    bootstrap.streamMayHaveEnded(link.peer());
  }
}
