// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.fluxccl.concurrent.RankLog;
import io.netty.channel.ServerChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The bootstrap over TCP. One of the ranks, or the process that created the {@link UniqueId}, hosts
 * the root, at which all ranks register. Afterwards messages to and from the rank that hosts the
 * root travel on the connections with the root; other ranks connect to each other when they first
 * need it.
 *
 * <p>Every connection begins with a handshake in which both sides prove that they know the job's
 * secret; without a secret only loopback addresses are used. Later frames are authenticated if
 * there is a secret, and encrypted only over TLS. All bootstraps of a JVM share one daemon thread,
 * which ends with the last of them.
 */
public final class TcpBootstrap extends CollectiveBootstrap {
  private static final Logger LOG = LoggerFactory.getLogger(TcpBootstrap.class);
  private static final long GRACE_MILLIS = 1000;

  private final BootstrapOptions options;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Void> ready = NonblockingFuture.create();
  private final ChannelGroup channels;

  // The fields below are accessed only on the event loop.
  ControlConnection control;
  private Rendezvous rendezvous;
  BootstrapRoot localRoot;
  private boolean rootGone;
  private FluxCclException unknownHost;
  PeerLinks links;
  CompletableFuture<Void> left;

  private TcpBootstrap(int rank, int nRanks, BootstrapOptions options) {
    super(options.name(), rank, nRanks, options.messageLimit());
    this.options = options;
    this.channels = new DefaultChannelGroup(loop, true);
  }

  /**
   * Creates a bootstrap that is not connected yet.
   *
   * @param rank this rank, from 0
   * @param nRanks how many there are; the same on all
   * @param options see {@link BootstrapOptions}
   * @return the bootstrap; close it
   * @throws InvalidUsage if {@code rank} or {@code nRanks} is out of range
   */
  public static TcpBootstrap create(int rank, int nRanks, BootstrapOptions options) {
    return new TcpBootstrap(rank, nRanks, options);
  }

  /**
   * Opens a root in this process and returns the id by which to join it. The root closes when all
   * ranks have left, or when the last bootstrap of this process that joined it closes. Before all
   * ranks have registered, it also closes if no rank is connected for ten minutes.
   *
   * @param options the interface to listen at, and the heartbeat interval
   * @return the id, to be carried to all ranks
   * @throws TransportFailure if the port can't be opened
   * @throws InvalidUsage on the thread of the bootstraps, which must not wait
   */
  public static UniqueId createUniqueId(BootstrapOptions options) {
    return Rendezvous.create(options);
  }

  // ---- setting up ----

  /**
   * Joins the job of an id.
   *
   * @param id created by one process and given to all
   * @return completes when all ranks have registered; fails with {@link Timeout}, naming the ranks
   *     that did not register, after the options' timeout
   */
  public CompletableFuture<Void> initialize(UniqueId id) {
    return begin(() -> join(Rendezvous.of(id, options)));
  }

  /**
   * Joins the job whose root rank 0 hosts at an address.
   *
   * @param address {@code ip:port} or {@code interface:ip:port}, the same on all ranks but for the
   *     interface, which is each rank's own
   * @return as {@link #initialize(UniqueId)}
   */
  public CompletableFuture<Void> initialize(String address) {
    return begin(() -> join(address, SessionKey.of(options.secret(), "")));
  }

  private void join(String address, SessionKey key) {
    new Rendezvous.Search(this, options, key, RootAddress.parse(address), () -> !ready.isDone())
        .begin()
        .thenAccept(this::join)
        .exceptionally(this::failSetup);
  }

  /**
   * Joins the job that the environment describes.
   *
   * @param environment see {@link RankEnvironment}
   * @return as {@link #initialize(UniqueId)}; fails with {@link InvalidUsage} if the environment
   *     has no address of the root
   */
  public CompletableFuture<Void> initialize(RankEnvironment environment) {
    return begin(() -> joinAs(environment));
  }

  /**
   * Joins a generation of a job.
   *
   * @param membership of this rank; its rank and number of ranks are this bootstrap's
   * @return as {@link #initialize(UniqueId)}; fails as soon as another member is known to be dead
   */
  public CompletableFuture<Void> initialize(Membership membership) {
    membership.broken().thenAccept(reason -> operations.onLoop(() -> failSetup(reason)));
    return begin(() -> join(membership.rendezvous()));
  }

  private void joinAs(RankEnvironment environment) {
    if (environment.uniqueId().isPresent()) {
      join(Rendezvous.of(environment.uniqueId().get(), options));
    } else {
      SessionKey key =
          SessionKey.of(options.secret().or(environment::secret), environment.jobIdentity());
      join(environment.requireAddress(), key);
    }
  }

  private CompletableFuture<Void> begin(Runnable start) {
    Deadline deadline = Deadline.after(options.timeout());
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of("%s: initialize was called before; create another one", describe()));
    }
    operations.onLoop(() -> begin(start, deadline));
    return ready.copy();
  }

  private void begin(Runnable start, Deadline deadline) {
    if (hasEnded()) {
      ready.completeExceptionally(refusal());
      return;
    }
    operations.track(ready, deadline, this::late, this::endSetup);
    try {
      start.run();
    } catch (RuntimeException e) {
      failSetup(e);
    }
  }

  Void failSetup(Throwable reason) {
    ready.completeExceptionally(FluxCclException.from(reason));
    return null;
  }

  // A failed set-up closes its sockets at once, though the bootstrap is closed only later.
  private void endSetup() {
    if (ready.isCompletedExceptionally() && !hasEnded()) {
      FluxCclException reason = FluxCclException.from(ready.handle((v, why) -> why).join());
      if (localRoot != null || !(reason instanceof Timeout)) {
        // The others can't succeed without this rank, or without the root.
        relay(reason.attributedTo(rank()));
      }
      leave();
    }
  }

  /**
   * Sets why the root's host name is not resolved yet, for {@link #late}; null once it is resolved.
   */
  void hostIsUnknown(FluxCclException reason) {
    unknownHost = reason;
  }

  private FluxCclException late() {
    long millis = options.timeout().toMillis();
    String text = "%s: initialize: the root's address was not found within %s ms";
    if (unknownHost != null) {
      return unknownHost;
    }
    return control != null
        ? control.late(millis)
        : Timeout.of(FluxCclException.NO_RANK, text, describe(), millis);
  }

  private void join(Rendezvous found) {
    if (ready.isDone()) {
      // It took too long: the set-up has failed.
      if (found.hosted() != null) {
        found.hosted().leave(rank());
      }
      return;
    }
    rendezvous = found;
    localRoot = found.hosted();
    links = new PeerLinks(this, channels, found.from(), options.messageLimit());
    if (localRoot != null) {
      localRoot.host(this);
    }
    control = new ControlConnection(this, found, options.heartbeatInterval());
    control.connect();
  }

  ChannelGroup channels() {
    return channels;
  }

  // ---- for a rendezvous of the surviving ranks, once this is initialized ----

  BootstrapOptions options() {
    return options;
  }

  /** Returns where the ranks registered. */
  InetSocketAddress root() {
    return rendezvous.root();
  }

  /** Returns the key that only the ranks of this run or generation of the job have. */
  SessionKey jobKey() {
    return links.jobKey();
  }

  /** Returns the ranks that have left in good order. On the event loop. */
  CompletableFuture<Stream<Integer>> departures() {
    return links
        .probeDepartures()
        .thenApply(all -> IntStream.range(0, nRanks()).filter(this::hasDeparted).boxed());
  }

  // ---- messages ----

  @Override
  void transmit(int peer, StreamKey key, Message message, CompletableFuture<Void> done) {
    Data data = Data.of(key, message);
    if (peer == control.rootHost()) {
      control.send(data, done);
    } else if (rank() != control.rootHost()) {
      links.send(peer, data, done);
    } else if (localRoot != null) {
      localRoot.send(peer, data, done);
    } else {
      done.completeExceptionally(FrameSession.unsent(peer));
    }
  }

  @Override
  boolean mayStillDeliver(int peer) {
    return peer == control.rootHost() ? control.mayStillDeliver() : links.mayStillDeliver(peer);
  }

  @Override
  void relay(FluxCclException reason) {
    Failed failed = Failed.of(reason);
    if (localRoot != null) {
      localRoot.failed(failed); // now: it may close before it reads the connection
    } else if (control != null) {
      control.send(failed);
    }
    if (links != null) {
      links.sendAll(failed);
    }
  }

  @Override
  void onDeparture(int peer) {
    links.onDeparture(peer);
    if (hasEnded()) {
      return;
    }
    if (rootGone) {
      links.sendAll(new Departed(List.of(peer)));
      links.watchNext();
    }
  }

  // ---- leaving ----

  @Override
  CompletableFuture<Void> leave() {
    if (left == null) {
      left = links == null ? closeRoot() : flush().thenCompose(flushed -> sendGoodbye());
    }
    return left;
  }

  private CompletableFuture<Void> flush() {
    CompletableFuture<Void> flushed = links.flushed();
    ScheduledFuture<?> grace =
        loop.schedule(() -> flushed.complete(null), GRACE_MILLIS, TimeUnit.MILLISECONDS);
    return flushed.whenComplete((done, unused) -> grace.cancel(false));
  }

  private CompletableFuture<Void> sendGoodbye() {
    channels.close(channel -> channel instanceof ServerChannel);
    links.sendGoodbye();
    control.sendGoodbye();
    // Sockets still in their handshake need no goodbye.
    channels.close(channel -> channel.pipeline().get(Handshake.class) != null);
    CompletableFuture<Void> closed = NonblockingFuture.create();
    long graceMillis = FrameSession.graceMillis(silentRanks());
    ScheduledFuture<?> grace =
        loop.schedule(() -> channels.close(), graceMillis, TimeUnit.MILLISECONDS);
    channels
        .newCloseFuture()
        .addListener(
            all -> {
              grace.cancel(false);
              closed.complete(null);
            });
    return CompletableFuture.allOf(closed, closeRoot());
  }

  private CompletableFuture<Void> closeRoot() {
    BootstrapRoot root = localRoot;
    localRoot = null;
    return root == null ? CompletableFuture.completedFuture(null) : root.leave(rank());
  }

  // ---- what the connection with the root reports ----

  /** Opens the port for the other ranks, if it is not open yet, and describes this rank. */
  CompletableFuture<Register> register(InetAddress local) {
    HostIdentity identity = options.hostIdentity();
    return links
        .listen(local)
        .thenApply(address -> new Member(address, identity.hostHash(), identity.processHash()))
        .thenApply(member -> new Register(member, localRoot != null, HostIdentity.process()));
  }

  /** Completes the set-up: all ranks have registered. */
  void formed(Peers peers) {
    if (!rendezvous.key().guarded() && !options.insecure()) {
      for (Member member : peers.members()) {
        if (!member.address().getAddress().isLoopbackAddress()) {
          failSetup(
              InvalidUsage.of(
                  "%s is no loopback address, and there is no secret", member.address()));
          return;
        }
      }
    }
    links.begin(rendezvous.key().forJob(peers.jobId()), peers.members());
    if (!ready.isDone()) {
      initialized(peers.members());
      ready.complete(null);
    }
  }

  /** Continues without the root, unless the rank that hosts it has died. */
  void rootGone(boolean orderly) {
    rootGone = true;
    int rootHost = control.rootHost();
    if (!orderly && rootHost >= 0 && !hasDeparted(rootHost)) {
      fail(
          RemoteFailure.of(
              rootHost,
              "rank %s (%s), which hosts the root, died: its connection ended without a goodbye",
              rootHost,
              control.rootProcess()));
      return;
    }
    if (!orderly) {
      String gone = "{}: the root has died; the ranks watch each other from now on";
      RankLog.line(rank(), () -> LOG.info(gone, describe()));
    }
    links.replaceRoot(orderly);
  }
}
