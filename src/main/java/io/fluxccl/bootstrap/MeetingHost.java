// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attend;
import io.fluxccl.bootstrap.BootstrapFrame.Convened;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Spare;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The server at the job's address. It collects the processes that join, decides when a generation
 * forms and which of them are its members, and opens the root of its bootstrap. Members stay
 * connected, so that the server notices their death at once. Only on the event loop.
 */
final class MeetingHost extends Gate {
  private static final Logger LOG = LoggerFactory.getLogger(MeetingHost.class);

  /**
   * Time that a new host waits for survivors of the last generation that have not connected to it
   * yet.
   */
  private static final long SETTLE_MILLIS = 1_000;

  /**
   * Time that the host waits for connected members that have not asked to join: on a busy machine
   * some are late.
   */
  private static final long SILENT_MILLIS = 5_000;

  /** Interval at which the host probes the missing ranks of a failed job. */
  private static final long PROBE_MILLIS = 100;

  private static final int ATTEND_LIMIT = 1 << 20;

  /** The roots that this process has opened, by the address at which they listen. */
  private static final Map<InetSocketAddress, BootstrapRoot> ROOTS = new ConcurrentHashMap<>();

  /** The root of the latest generation. The next generation closes it if no rank is connected. */
  private Optional<BootstrapRoot> newestRoot = Optional.empty();

  /**
   * The {@code Convened} frame sent to rank 0 of the latest generation; null before the first
   * generation.
   */
  private Convened newest;

  private final EventLoop loop;
  private final MeetingPlace place;
  private final CompletableFuture<SessionKey> key;

  private final Set<Integer> dead = new HashSet<>();
  private final Set<Integer> probed = new HashSet<>();
  private final DefaultChannelGroup channels;
  private final Set<Session> sessions = new LinkedHashSet<>();
  private Channel listener;
  private long generation;
  private boolean convening;
  private boolean closed;
  private long roundBeganNanos;
  private ScheduledFuture<?> timer;

  MeetingHost(EventLoop loop, MeetingPlace place) {
    this.loop = loop;
    this.place = place;
    this.key = CompletableFuture.completedFuture(place.key());
    this.channels = new DefaultChannelGroup(loop, true);
  }

  static BootstrapRoot rootAt(InetSocketAddress address) {
    return ROOTS.get(address);
  }

  /** Listens. Fails if another process listens there, or if the address is not this host's. */
  CompletableFuture<InetSocketAddress> open(InetSocketAddress address) {
    return Frames.listen(loop, address, this, channels, "the rendezvous", FluxCclException.NO_RANK)
        .thenApply(
            bound -> {
              listener = bound;
              return (InetSocketAddress) bound.localAddress();
            });
  }

  void close() {
    closed = true;
    if (timer != null) {
      timer.cancel(false);
    }
    channels.close();
    newestRoot.ifPresent(BootstrapRoot::killUnused);
  }

  @Override
  CompletableFuture<SessionKey> key() {
    return key;
  }

  @Override
  int expectedRanks() {
    return place.nRanks();
  }

  @Override
  BootstrapFrame answer(boolean all) {
    return newest == null ? new Waiting(missing(waiting(), Set.of())) : newest;
  }

  @Override
  Admission judge(Proof proof) {
    if (proof.kind() != LinkKind.MEETING) {
      return Admission.JOB_COMPLETE;
    }
    return proof.nRanks() == place.nRanks() ? Admission.WELCOME : Admission.WRONG_RANK_COUNT;
  }

  @Override
  void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    Session session = new Session(channel, proof.rank());
    sessions.add(session);
    session.replace(acceptor, ATTEND_LIMIT);
  }

  // ---- the participants ----

  private List<Session> waiting() {
    return sessions.stream().filter(each -> each.request != null).toList();
  }

  private void came(Session session, Attend request) {
    if (waiting().isEmpty()) {
      roundBeganNanos = System.nanoTime();
    }
    session.request = request;
    decide();
  }

  /** Forms a generation if all expected processes have joined. Called whenever that may change. */
  private void decide() {
    List<Session> waiting = waiting();
    if (closed || convening || waiting.isEmpty()) {
      return;
    }
    long last = waiting.stream().mapToLong(each -> each.request.generation()).max().getAsLong();
    last = Math.max(last, generation);
    List<Session> survivors = survivors(waiting, last);
    long least = waiting.stream().mapToInt(each -> each.request.least()).max().getAsInt();
    boolean complete = waiting.size() >= place.nRanks();
    if (!complete && place.isFailed(last)) {
      complete = areAllHere(last, survivors);
      if (!complete) {
        // Live ranks may be about to join.
        later(() -> probe(waiting, survivors), TimeUnit.MILLISECONDS.toNanos(PROBE_MILLIS));
      }
    } else if (!complete && !survivors.isEmpty() && waiting.size() >= least) {
      long patience =
          waiting.stream().mapToLong(each -> each.request.patienceMillis()).max().getAsLong();
      long absent = last == generation ? SILENT_MILLIS : SETTLE_MILLIS;
      long limit = areAllHere(last, survivors) ? patience : Math.max(patience, absent);
      long left = TimeUnit.MILLISECONDS.toNanos(limit) - (System.nanoTime() - roundBeganNanos);
      complete = left <= 0;
      if (!complete) {
        later(this::decide, left);
      }
    }
    if (complete) {
      convene(last + 1, survivors, waiting);
    } else {
      sendMissing(waiting, survivors, last);
    }
  }

  private void later(Runnable task, long nanos) {
    if (timer != null) {
      timer.cancel(false);
    }
    timer = loop.schedule(task, nanos, TimeUnit.NANOSECONDS);
  }

  private static List<Session> survivors(List<Session> waiting, long last) {
    return waiting.stream()
        .filter(each -> last > 0 && each.request.generation() == last)
        .sorted(Comparator.comparingInt(each -> each.request.previousRank()))
        .toList();
  }

  /** Returns ranks of the last generation that are known not to join. */
  private Set<Integer> lost(List<Session> survivors) {
    Set<Integer> lost = new HashSet<>(dead);
    survivors.forEach(each -> lost.addAll(each.request.lost()));
    return lost;
  }

  /** Returns whether all members of the last generation have joined, except lost ones. */
  private boolean areAllHere(long last, List<Session> survivors) {
    Set<Integer> lost = lost(survivors);
    if (last == generation) {
      return sessions.stream()
          .noneMatch(
              each -> each.memberOf == last && each.request == null && !lost.contains(each.rank));
    }
    survivors.forEach(each -> lost.add(each.request.previousRank()));
    int size = survivors.get(0).request.previousSize();
    return IntStream.range(0, size).allMatch(lost::contains);
  }

  /** Probes whether the missing ranks of a failed job are alive. */
  private void probe(List<Session> waiting, List<Session> survivors) {
    for (int rank : missing(waiting, lost(survivors))) {
      if (probed.add(rank)) {
        Frames.probe(
            loop,
            place.failed().member(rank).address(),
            channels,
            () -> probed.remove(rank),
            () -> {
              dead.add(rank);
              decide();
            });
      }
    }
    decide();
  }

  private List<Integer> missing(List<Session> waiting, Set<Integer> lost) {
    Set<Integer> wished = new HashSet<>(lost);
    waiting.stream().filter(each -> each.request != null).forEach(each -> wished.add(each.wish()));
    return IntStream.range(0, place.nRanks())
        .filter(rank -> !wished.contains(rank))
        .boxed()
        .toList();
  }

  /**
   * Sends the list of missing ranks to each waiting process. While a generation runs, sends a
   * {@link Spare} to newcomers instead and, if the generation has free ranks, to its members.
   */
  private void sendMissing(List<Session> waiting, List<Session> survivors, long last) {
    List<Session> running =
        sessions.stream()
            .filter(each -> each.request == null && last > 0 && each.memberOf == last)
            .toList();
    List<Session> newcomers =
        waiting.stream().filter(each -> each.request.generation() < last).toList();
    if (!running.isEmpty() && !newcomers.isEmpty()) {
      newcomers.forEach(each -> each.send(new Spare()));
      if (running.size() < place.nRanks()) {
        running.forEach(each -> each.send(new Spare()));
      }
    }
    // Except after a failed job, lost ranks are to be replaced, so they are missing, too.
    List<Integer> missing = missing(waiting, place.isFailed(last) ? lost(survivors) : Set.of());
    waiting.stream()
        .filter(each -> running.isEmpty() || !newcomers.contains(each))
        .forEach(each -> each.send(new Waiting(missing)));
  }

  // ---- a generation forms ----

  private void convene(long next, List<Session> survivors, List<Session> waiting) {
    List<Session> chosen = new ArrayList<>(survivors);
    waiting.stream().filter(each -> !survivors.contains(each)).forEach(chosen::add);
    Session[] members = ranked(chosen.subList(0, Math.min(place.nRanks(), chosen.size())));
    convening = true;
    byte[] jobId = SessionKey.nonce(BootstrapFrameCodec.JOB_ID_BYTES);
    BootstrapRoot root =
        new BootstrapRoot(place.key().forJob(jobId), members.length, place.options());
    InetSocketAddress here = (InetSocketAddress) listener.localAddress();
    root.open(new InetSocketAddress(here.getAddress(), 0))
        .whenComplete(
            (at, failure) -> {
              convening = false;
              if (closed && failure == null) {
                root.kill();
              } else if (failure != null) {
                LOG.warn("generation {}: {}; trying again", next, failure.getMessage());
                later(this::decide, TimeUnit.MILLISECONDS.toNanos(SETTLE_MILLIS));
              } else {
                ROOTS.put(at, root);
                newestRoot.ifPresent(BootstrapRoot::killUnused);
                newestRoot = Optional.of(root);
                root.ended().thenRun(() -> ROOTS.remove(at));
                begin(next, members, jobId, at);
              }
            });
  }

  /**
   * Returns members by rank. In a full generation survivors keep their ranks and newcomers get the
   * free ones, if possible as requested. In a smaller one, survivors keep their order.
   */
  private Session[] ranked(List<Session> chosen) {
    Session[] members = new Session[chosen.size()];
    List<Session> unplaced = new ArrayList<>();
    for (Session each : chosen) {
      int wish = each.wish();
      boolean full = chosen.size() == place.nRanks();
      if (full && wish >= 0 && wish < members.length && members[wish] == null) {
        members[wish] = each;
      } else {
        unplaced.add(each);
      }
    }
    int next = 0;
    for (Session each : unplaced) {
      while (members[next] != null) {
        next++;
      }
      members[next] = each;
    }
    return members;
  }

  private void begin(long next, Session[] members, byte[] jobId, InetSocketAddress root) {
    generation = next;
    List<Integer> previous =
        Arrays.stream(members).map(each -> each.previousRank(next - 1)).toList();
    for (int rank = 0; rank < members.length; rank++) {
      Session member = members[rank];
      member.memberOf = next;
      member.rank = rank;
      member.request = null;
      member.send(new Convened(next, rank, previous, jobId, root));
    }
    newest = new Convened(next, 0, previous, jobId, root);
    // A member may have died while the root was being opened.
    Arrays.stream(members).filter(each -> !sessions.contains(each)).forEach(this::gone);
    LOG.debug("generation {} has {} ranks", next, members.length);
    roundBeganNanos = System.nanoTime();
    decide();
  }

  /** Notifies the other members that this member is dead; they may be waiting for it in set-up. */
  private void gone(Session member) {
    String why = Text.of("rank %d of generation %d has left or died", member.rank, member.memberOf);
    Failed news = new Failed(ErrorCode.REMOTE_FAILURE, member.rank, why);
    List.copyOf(sessions).stream()
        .filter(each -> each.memberOf == member.memberOf && each.request == null)
        .forEach(each -> each.send(news));
  }

  /** The host's side of one process's connection. */
  private final class Session extends FrameSession {
    private final int wished;
    private Attend request; // null while it does not wait
    private long memberOf;
    private int rank = Membership.NEWCOMER;

    Session(Channel channel, int wished) {
      super(channel);
      this.wished = wished;
    }

    int wish() {
      return request.generation() > 0 ? request.previousRank() : wished;
    }

    int previousRank(long before) {
      return before > 0 && request.generation() == before
          ? request.previousRank()
          : Membership.NEWCOMER;
    }

    @Override
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Attend attend) {
        came(this, attend);
      } else {
        ctx.close();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      sessions.remove(this);
      if (memberOf == generation && generation > 0 && request == null) {
        gone(this);
      }
      decide();
    }
  }
}
