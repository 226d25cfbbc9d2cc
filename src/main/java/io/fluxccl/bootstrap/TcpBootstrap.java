package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Ranks that find each other over TCP. One of them, or the process that made the {@link UniqueId},
 * hosts the root, where all meet; afterwards they talk to each other directly.
 *
 * <p>Every connection begins with a handshake in which both sides prove that they know the job's
 * secret; without a secret only loopback addresses are used. The handshake keeps strangers out;
 * what follows is not encrypted. All bootstraps of a JVM share one daemon thread, which ends with
 * the last of them.
 */
public final class TcpBootstrap extends AbstractBootstrap {
  private static final Logger LOG = LoggerFactory.getLogger(TcpBootstrap.class);
  private static final long GRACE_MILLIS = 1000;

  private final BootstrapOptions options;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Void> ready = new CompletableFuture<>();
  private final ChannelGroup channels;
  private final HeartbeatClock clock;
  private volatile int unresponsive = FluxCclException.NO_RANK;

  // The rest is of the event loop only.
  private MeetingPoint meeting;
  private BootstrapRoot localRoot;
  private boolean allHaveCome;
  private int rootHost = FluxCclException.NO_RANK;
  private boolean rootGone;
  private ControlConnection control;
  private PeerLinks links;
  private CompletableFuture<Register> listening;
  private ScheduledFuture<?> ticks;
  private List<Integer> silent = List.of();
  private CompletableFuture<Void> left;

  private TcpBootstrap(int rank, int nRanks, BootstrapOptions options) {
    super(rank, nRanks, options.messageLimit());
    this.options = options;
    this.channels = new DefaultChannelGroup(loop, true);
    this.clock = new HeartbeatClock(options.heartbeatInterval());
  }

  /**
   * A bootstrap that is not connected yet.
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
   * Opens a root in this process and gives the id by which to join it. The root ends when all ranks
   * have left, when the last bootstrap of this process that joined it closes, or when, before all
   * have come, nobody is there for ten minutes.
   *
   * @param options the interface to listen at, and the heartbeat interval
   * @return the id, to be carried to all ranks
   * @throws TransportFailure if the port can't be opened
   * @throws InvalidUsage on the bootstraps' own thread, which must not wait
   */
  public static UniqueId createUniqueId(BootstrapOptions options) {
    return LocalRoots.create(options);
  }

  // ---- setting up ----

  /**
   * Joins the job of an id.
   *
   * @param id what one process made and all got
   * @return completes when all ranks are connected; fails with {@link Timeout}, naming the ranks
   *     that did not come, after the options' timeout
   */
  public CompletableFuture<Void> initialize(UniqueId id) {
    return begin(() -> meet(id));
  }

  private void meet(UniqueId id) {
    join(MeetingPoint.of(id, options));
  }

  /**
   * Joins the job whose root rank 0 hosts at an address.
   *
   * @param address {@code ip:port} or {@code interface:ip:port}, the same on all ranks but for the
   *     interface, which is each rank's own
   * @return as {@link #initialize(UniqueId)}
   */
  public CompletableFuture<Void> initialize(String address) {
    return begin(() -> meet(address, sessionKey(Optional.empty(), "")));
  }

  private SessionKey sessionKey(Optional<JobSecret> otherwise, String jobIdentity) {
    return options
        .secret()
        .or(() -> otherwise)
        .map(SessionKey::of)
        .orElseGet(() -> SessionKey.withoutSecret(jobIdentity));
  }

  private void meet(String address, SessionKey sessionKey) {
    new MeetingPoint.Search(this, options, sessionKey, address, () -> !ready.isDone())
        .begin()
        .whenComplete(
            (found, failure) -> {
              if (failure != null) {
                ready.completeExceptionally(FluxCclException.from(failure));
              } else {
                guard(() -> join(found));
              }
            });
  }

  /**
   * Joins the job that the environment describes.
   *
   * @param environment see {@link RankEnvironment}
   * @return as {@link #initialize(UniqueId)}; fails with {@link InvalidUsage} if the environment
   *     doesn't say where the ranks meet
   */
  public CompletableFuture<Void> initialize(RankEnvironment environment) {
    return begin(
        () ->
            environment
                .uniqueId()
                .ifPresentOrElse(
                    this::meet,
                    () ->
                        meet(
                            environment.requireAddress(),
                            sessionKey(environment.secret(), environment.jobIdentity()))));
  }

  private CompletableFuture<Void> begin(Runnable start) {
    Deadline deadline = Deadline.after(options.timeout());
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          new InvalidUsage(describe() + ": initialize was called already"));
    }
    onLoop(
        () -> {
          if (hasEnded()) {
            ready.completeExceptionally(failure().getNow(null));
            return;
          }
          operations().track(ready, deadline, this::late, this::endTrial);
          guard(start);
        });
    return ready.copy();
  }

  private void guard(Runnable step) {
    try {
      step.run();
    } catch (RuntimeException e) {
      ready.completeExceptionally(FluxCclException.from(e));
    }
  }

  // A set-up that failed leaves no socket behind, though the bootstrap is closed only later.
  private void endTrial() {
    if (ready.isCompletedExceptionally() && !hasEnded()) {
      leave();
    }
  }

  private Timeout late() {
    long millis = options.timeout().toMillis();
    if (links != null && allHaveCome) {
      int peer = links.missingNeighbour();
      return new Timeout(
          peer,
          describe()
              + ": initialize: no connection with rank "
              + peer
              + " within "
              + millis
              + " ms; does a firewall stand between?");
    }
    if (control != null) {
      return control.late(millis);
    }
    return new Timeout(
        FluxCclException.NO_RANK, describe() + ": initialize got nowhere within " + millis + " ms");
  }

  private void join(MeetingPoint at) {
    if (ready.isDone()) {
      // It took too long: nobody waits for it any more.
      if (at.hosted() != null) {
        at.hosted().leave(rank());
      }
      return;
    }
    meeting = at;
    localRoot = at.hosted();
    links = new PeerLinks(this, channels, at.from(), options.messageLimit());
    control = new ControlConnection(this, at, new Rendezvous());
    control.connect();
  }

  ChannelGroup channels() {
    return channels;
  }

  // ---- heartbeats ----

  private void tick() {
    if (clock.stalled()) {
      control.excuseSilence();
    }
    boolean rootSilent = !rootGone && control.isSilentSince(clock.silenceLimit());
    if (rootSilent && rootHost >= 0 && rootHost != rank()) {
      unresponsive = rootHost;
    } else {
      unresponsive =
          silent.stream()
              .filter(each -> each != rank() && !hasDeparted(each))
              .findFirst()
              .orElse(-1);
    }
  }

  @Override
  public OptionalInt unresponsiveRank() {
    int rank = unresponsive;
    return rank < 0 ? OptionalInt.empty() : OptionalInt.of(rank);
  }

  // ---- what the operations need ----

  @Override
  void transmit(int peer, StreamKey streamKey, Message message, CompletableFuture<Void> done) {
    links.send(peer, streamKey, message, done);
  }

  @Override
  boolean mayStillDeliver(int peer) {
    return links.mayStillDeliver(peer);
  }

  @Override
  void relay(FluxCclException reason) {
    Failed news = Failed.of(reason);
    if (control != null) {
      control.tell(news);
    }
    if (links != null) {
      links.tell(news);
    }
  }

  @Override
  void onDeparture(int peer) {
    links.onDeparture(peer);
    if (hasEnded()) {
      return;
    }
    if (rootGone) {
      links.tell(new Departed(List.of(peer)));
      links.watchNext();
    }
    if (!ready.isDone() && links.missingNeighbour() == peer) {
      ready.completeExceptionally(
          new RemoteFailure(peer, describe() + ": rank " + peer + " left during initialize"));
    }
  }

  // ---- leaving ----

  @Override
  CompletableFuture<Void> leave() {
    if (left == null) {
      left = links == null ? closeRoot() : flushAndSayGoodbye();
    }
    return left;
  }

  private CompletableFuture<Void> flushAndSayGoodbye() {
    CompletableFuture<Void> flushed = links.flushed();
    CompletableFuture<Void> gone = new CompletableFuture<>();
    ScheduledFuture<?> patience =
        loop.schedule(() -> flushed.complete(null), GRACE_MILLIS, TimeUnit.MILLISECONDS);
    flushed.thenRun(
        () -> {
          patience.cancel(false);
          sayGoodbye().thenRun(() -> gone.complete(null));
        });
    return gone;
  }

  private CompletableFuture<Void> sayGoodbye() {
    if (ticks != null) {
      ticks.cancel(false);
    }
    channels.close(channel -> channel instanceof io.netty.channel.ServerChannel);
    links.sayGoodbye();
    control.sayGoodbye();
    // Sockets still in their handshake owe nobody a goodbye.
    channels.close(channel -> channel.pipeline().get(HandshakeAcceptor.class) != null);
    channels.close(channel -> channel.pipeline().get(HandshakeConnector.class) != null);
    CompletableFuture<Void> closed = new CompletableFuture<>();
    ScheduledFuture<?> grace =
        loop.schedule(() -> channels.close(), GRACE_MILLIS, TimeUnit.MILLISECONDS);
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

  /** Closes every socket without a word, as if this process had died; for tests. */
  CompletableFuture<Void> kill() {
    CompletableFuture<Void> killed = new CompletableFuture<>();
    loop.execute(
        () -> {
          left = CompletableFuture.completedFuture(null);
          if (ticks != null) {
            ticks.cancel(false);
          }
          links.sayNothing();
          control.sayNothing();
          channels.close();
          if (localRoot != null) {
            localRoot.kill();
            localRoot = null;
          }
          killed.complete(null);
        });
    return killed;
  }

  /** What the control connection reports. */
  private final class Rendezvous implements ControlConnection.Owner {
    @Override
    public CompletableFuture<Register> listen(InetAddress local) {
      if (listening == null) {
        listening = new CompletableFuture<>();
        Frames.listen(loop, new InetSocketAddress(local, 0), links, channels)
            .addListener(
                (ChannelFuture bound) -> {
                  if (bound.isSuccess()) {
                    listening.complete(describeMyself(bound.channel()));
                  } else {
                    listening.completeExceptionally(
                        new TransportFailure(
                            rank(),
                            describe() + " can't listen at " + local.getHostAddress(),
                            bound.cause()));
                  }
                });
      }
      return listening;
    }

    private Register describeMyself(Channel listener) {
      HostIdentity identity = options.hostIdentity();
      Member member =
          new Member(
              (InetSocketAddress) listener.localAddress(),
              identity.hostHash(),
              identity.processHash());
      return new Register(member, localRoot != null);
    }

    @Override
    public void formed(Peers peers) {
      allHaveCome = true;
      rootHost = peers.rootHost();
      for (Member member : peers.members()) {
        boolean loopback = member.address().getAddress().isLoopbackAddress();
        if (!meeting.key().guarded() && !options.insecure() && !loopback) {
          refused(
              new InvalidUsage(member.address() + " is no loopback address, and no secret set"));
          return;
        }
      }
      long nanos = clock.intervalNanos();
      ticks = loop.scheduleAtFixedRate(TcpBootstrap.this::tick, nanos, nanos, TimeUnit.NANOSECONDS);
      links
          .begin(meeting.key().forJob(peers.jobId()), peers, options.timeout().toNanos())
          .thenRun(
              () -> {
                if (!ready.isDone()) {
                  initialized(peers.members());
                  ready.complete(null);
                }
              });
    }

    @Override
    public void refused(FluxCclException reason) {
      ready.completeExceptionally(reason);
    }

    @Override
    public void silent(List<Integer> ranks) {
      silent = ranks;
      tick();
    }

    @Override
    public void rootGone(boolean orderly) {
      rootGone = true;
      silent = List.of();
      unresponsive = FluxCclException.NO_RANK;
      if (!orderly && rootHost >= 0 && !hasDeparted(rootHost)) {
        fail(
            new RemoteFailure(
                rootHost,
                describe()
                    + " lost rank "
                    + rootHost
                    + ", which hosts the root: its connection ended without a goodbye"));
        return;
      }
      if (!orderly) {
        LOG.warn("{}: the root is gone; the ranks watch each other from now on", describe());
      }
      List<Integer> known = new ArrayList<>();
      for (int peer = 0; peer < nRanks(); peer++) {
        if (hasDeparted(peer)) {
          known.add(peer);
        }
      }
      if (!known.isEmpty()) {
        links.tell(new Departed(known));
      }
      links.watchNext();
    }
  }
}
