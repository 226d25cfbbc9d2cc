// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMembers;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMissing;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Refuse;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Send;
import io.fluxccl.bootstrap.Mailboxes.WaitingBytes;
import io.fluxccl.bootstrap.Member.State;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.RankLog;
import io.netty.channel.EventLoop;
import io.netty.channel.ServerChannel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * This process's part in a job: its listeners, its links, and the state machine by which it joins
 * one group of the job after another. It outlives the groups. Each group is a {@link TcpBootstrap}.
 *
 * <p>The machine is {@link Member}, whose protocol {@link Coordinator} describes; this class
 * carries its messages. Thread-safe; its state belongs to the bootstraps' thread.
 */
@Experimental
public final class Job implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Job.class);
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final long GRACE_MILLIS = 1000;

  /** Until the news that this process leaves has arrived; without it the leave is a death. */
  private static final long NEWS_GRACE_MILLIS = 3000;

  private static final long RETRY_MILLIS = 50;

  /** Attempts to listen, 3 s: an earlier run may be about to release a port of the job. */
  private static final int MOST_FOREIGN_ATTEMPTS = 60;

  private static final long REFUSED_NANOS = TimeUnit.SECONDS.toNanos(3);

  /** A refused connection may mean that the process leaves; the news may be on its way. */
  private static final long NEWS_MILLIS = 300;

  private static final long LISTEN_AGAIN_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final int KEPT_BALLOTS = 2;
  private static final long UNUSED_NANOS = TimeUnit.MINUTES.toNanos(10);

  private final JobPlace place;
  private final BootstrapOptions options;
  final JobSockets sockets;
  final Links links;
  final GroupMessages messages;
  private final EventLoop loop;

  /** Completes when this process has left the job. */
  final CompletableFuture<Void> ended = new CompletableFuture<>();

  // The fields below are accessed only on the event loop.
  private final Set<Object> users = new HashSet<>();
  private final Map<InetSocketAddress, Set<Integer>> departures = new LinkedHashMap<>();
  private Nonce departuresBase = Roster.NONE.nonce();

  /** Attempts in a row to listen where a process answers that does not form the group. */
  private int foreignAttempts;

  private CompletableFuture<Void> started;
  LocalProcess process;
  private Member member;
  private Coordinator root;
  private Ballots ballots;

  /** The latest groups. */
  private final Queue<Roster> bases = new ArrayDeque<>();

  private CompletableFuture<Void> votes = CompletableFuture.completedFuture(null);
  private volatile Joining joining; // also read while addresses are resolved
  private volatile FluxCclException unknownHost; // also set while addresses are resolved
  private long refusedSinceNanos;
  private boolean isRefused;
  private long listenNanos;
  private ScheduledFuture<?> timer;
  private long timerNanos;
  private CompletableFuture<Void> left;

  /** A join that has not ended. */
  private record Joining(
      Kind kind, Duration limit, TcpBootstrap first, CompletableFuture<TcpBootstrap> result) {}

  Job(JobPlace place, BootstrapOptions options, Object user) {
    this.place = place;
    this.options = options;
    this.sockets = new JobSockets(this, place, options);
    this.loop = sockets.loop;
    this.links = new Links(this);
    this.messages = new GroupMessages(links);
    users.add(user);
  }

  /**
   * Creates a process's part in a job that heals: {@link #join} joins one generation after another.
   *
   * @param place the requested rank, the number of ranks of a full generation, and the address. A
   *     unique id is refused, because its root ends with the process that created it
   * @param options secret, heartbeat interval and name
   * @param least the fewest ranks that a generation after the first may have
   * @param replacementTimeout the time that a smaller generation waits for more ranks
   * @throws InvalidUsage if there is no address, or a number is out of range
   */
  public static Job of(
      RankEnvironment place, BootstrapOptions options, int least, Duration replacementTimeout) {
    JobPlace wanted = JobPlace.healing(place, options, least, replacementTimeout);
    return new Job(wanted, options, Job.class);
  }

  /** Returns the address by which the job is known. */
  InetSocketAddress jobAddress() {
    return process.jobAddresses.iterator().next();
  }

  /** Returns whether any process of the job may listen at an address. */
  boolean isShared(InetSocketAddress to) {
    return process.jobAddresses.contains(to);
  }

  /** Returns whether this process is leaving the job, or has left it. */
  boolean isLeaving() {
    return left != null;
  }

  /** Returns whether this process has left the job. */
  boolean hasEnded() {
    return left != null && left.isDone();
  }

  private String describe() {
    return place.describe();
  }

  // ---- joining ----

  /**
   * Joins the first group of the job, or the next one after a failure. One call at a time.
   *
   * @param limit the time for it; begins again when a running group that this process waits for has
   *     ended
   * @return the new group's bootstrap: close it. Fails with {@link Timeout}, naming the missing
   *     ranks; with {@link InvalidUsage} if this process differs from the others of the job, naming
   *     the option and both values; with {@link Aborted} if the job was closed here
   * @throws InvalidUsage if the limit is negative
   */
  public CompletableFuture<TcpBootstrap> join(Duration limit) {
    return join(place.kind(), limit, null);
  }

  /**
   * Joins a group.
   *
   * @param first the bootstrap of a first group that was created before; else null
   */
  CompletableFuture<TcpBootstrap> join(Kind kind, Duration limit, TcpBootstrap first) {
    CompletableFuture<TcpBootstrap> result = new CompletableFuture<>();
    Joining next = new Joining(kind, Deadline.after(limit).timeout(), first, result);
    onLoop(() -> begin(next), () -> result.completeExceptionally(closed()));
    return result;
  }

  private void onLoop(Runnable task, Runnable ended) {
    try {
      Frames.onLoop(loop, task);
    } catch (RejectedExecutionException e) {
      ended.run();
    }
  }

  private Aborted closed() {
    return Aborted.of(place.rank(), "%s: the job was closed on this rank", describe());
  }

  private void begin(Joining next) {
    boolean isClosed = left != null || (place.kind() == Kind.HEALING && !users.contains(Job.class));
    if (isClosed || joining != null) {
      next.result.completeExceptionally(
          isClosed ? closed() : InvalidUsage.of("%s joins already", describe()));
      return;
    }
    joining = next;
    if (next.first == null) {
      users.add(next);
    }
    if (member != null) {
      request(next, next.limit.toNanos());
      return;
    }
    long beganNanos = System.nanoTime();
    ScheduledFuture<?> guard =
        loop.schedule(() -> endJoin(lateToStart(next)), next.limit.toNanos(), TimeUnit.NANOSECONDS);
    start()
        .whenCompleteAsync(
            (begun, failure) -> {
              guard.cancel(false);
              if (failure != null) {
                started = null;
                endJoin(FluxCclException.from(failure));
              } else if (joining == next) {
                member = new Member(process);
                sockets.isReady = true;
                long used = System.nanoTime() - beganNanos;
                request(next, Math.max(1, next.limit.toNanos() - used));
                listenAtJobAddress();
              }
            },
            loop);
  }

  private FluxCclException lateToStart(Joining late) {
    String text = "%s: initialize: the job's address was not found within %s ms";
    return unknownHost != null
        ? unknownHost
        : Timeout.of(FluxCclException.NO_RANK, text, describe(), late.limit.toMillis());
  }

  private void request(Joining next, long limitNanos) {
    Duration limit = Duration.ofNanos(limitNanos);
    JoinRequest request = place.request(next.kind, limit, options.settings());
    run(member.join(request, System.nanoTime()));
  }

  private void endJoin(FluxCclException reason) {
    if (joining != null) {
      Joining ended = joining;
      joining = null;
      ended.result.completeExceptionally(reason);
      if (member != null && left == null) {
        run(member.abandon(Failure.of(reason), System.nanoTime()));
      }
      release(ended);
    }
  }

  // ---- starting ----

  /** Resolves the job's addresses and opens this process's own sockets. */
  private CompletableFuture<Void> start() {
    if (started == null) {
      started =
          CompletableFuture.supplyAsync(this::prepare, BlockingTasks.EXECUTOR)
              .thenComposeAsync(this::listen, loop);
    }
    return started;
  }

  /** Opens the ballots of this host, and returns the job's addresses. Blocks. */
  private Set<InetSocketAddress> prepare() {
    ballots = Ballots.of(options.hostIdentity().hostHash(), place.rules(options));
    return place.resolve(
        options,
        reason -> {
          unknownHost = reason;
          return joining != null;
        });
  }

  private CompletableFuture<Void> listen(Set<InetSocketAddress> addresses) {
    unknownHost = null;
    sockets.from = place.from(options);
    InetAddress local =
        sockets.from != null ? sockets.from : NetworkAddresses.towards(addresses.iterator().next());
    long host = ballots.host();
    // Rank 0 first listens at the job's address, before another process gets its port by chance.
    return (place.rank() == 0
            ? sockets.open(addresses)
            : CompletableFuture.completedFuture(addresses))
        .thenCompose(
            known -> sockets.openOwn(local, known).thenAccept(own -> listening(own, known, host)));
  }

  private void listening(InetSocketAddress own, Set<InetSocketAddress> addresses, long host) {
    HostIdentity identity = options.hostIdentity();
    Contact self =
        new Contact(
            own,
            sockets.id,
            host,
            identity.hostHash(),
            identity.processHash(),
            HostIdentity.process());
    process =
        new LocalProcess(
            self, place.rules(options), () -> new Nonce(RANDOM.nextLong(), RANDOM.nextLong()));
    process.jobAddresses.addAll(addresses);
    sockets.address = own;
  }

  /**
   * Listens at the job's addresses, as far as no other process does. In a first join only rank 0
   * does: a listener that is no member would hide the job from it.
   */
  private void listenAtJobAddress() {
    boolean isFirst = member.roster().isEmpty();
    if (left == null && (!isFirst || (place.rank() == 0 && joining != null))) {
      sockets.open(process.jobAddresses).thenRun(this::listens);
    }
  }

  private void listens() {
    if (left == null && sockets.isOpen()) {
      run(member.beginRoot(System.nanoTime()));
    } else if (joining != null && member.roster().isEmpty()) {
      boolean isForeign = member.state() == State.SEEKING && links.hasAnswer(jobAddress());
      foreignAttempts = isForeign ? foreignAttempts + 1 : 0;
      if (joining.kind == Kind.FIXED && foreignAttempts > MOST_FOREIGN_ATTEMPTS) {
        endJoin(sockets.failure());
      } else {
        loop.schedule(this::listenAtJobAddress, RETRY_MILLIS, TimeUnit.MILLISECONDS);
      }
    }
  }

  /** Opens the listener of a root without a rank, which forms the first group and then leaves. */
  CompletableFuture<InetSocketAddress> openRoot(InetAddress ip) {
    Set<InetSocketAddress> anyPort = Set.of(new InetSocketAddress(ip, 0));
    return CompletableFuture.supplyAsync(() -> sockets.open(anyPort), loop)
        .thenCompose(Function.identity())
        .thenComposeAsync(known -> openRoot(ip, known), loop);
  }

  private CompletableFuture<InetSocketAddress> openRoot(
      InetAddress ip, Set<InetSocketAddress> known) {
    if (!sockets.isOpen()) {
      return CompletableFuture.failedFuture(sockets.failure());
    }
    return sockets
        .openOwn(ip, known)
        .thenApply(
            own -> {
              listening(own, known, RANDOM.nextLong());
              long now = System.nanoTime();
              Term first = new Term(1, 1, 0);
              root = new Coordinator(process, Roster.NONE, first, Optional.empty(), now);
              sockets.isReady = true;
              listenNanos = now;
              schedule();
              return jobAddress();
            });
  }

  // ---- the machine ----

  private void run(List<JoinOutput> outputs) {
    Optional<RuntimeException> failure = Optional.empty();
    for (JoinOutput each : outputs) {
      try {
        handle(each);
      } catch (RuntimeException e) {
        failure = Optional.of(e); // the later actions are carried out
      }
    }
    if (!departures.isEmpty()) {
      loop.execute(this::sendDepartures);
    }
    schedule();
    failure.ifPresent(this::fail);
  }

  /** Fails the join, or else the group, with an error of this process. */
  private void fail(RuntimeException failure) {
    FluxCclException reason = FluxCclException.from(failure);
    if (joining != null) {
      endJoin(reason);
    } else if (messages.group() != null) {
      messages.group().fail(reason);
    } else {
      LOG.warn("{}: {}", describe(), reason.getMessage(), failure);
    }
  }

  private void handle(JoinOutput output) {
    if (output instanceof Send send) {
      send(send.to(), send.message());
    } else if (output instanceof JoinOutput.CastVote vote) {
      vote(vote);
    } else if (output instanceof JoinOutput.Joined joined) {
      begin(joined.roster(), joined.rank());
    } else if (output instanceof JoinOutput.GroupFailed failed) {
      messages.end(failed.failure().toException());
    } else if (output instanceof JoinOutput.Ended ended) {
      endJoin(explained(ended.failure()));
    } else if (messages.group() != null) {
      handle(messages.group(), output);
    }
  }

  private void handle(TcpBootstrap group, JoinOutput output) {
    if (output instanceof JoinOutput.Silent silent) {
      group.silent(silent.ranks(), System.nanoTime() - process.rules.leaseNanos());
    } else if (output instanceof JoinOutput.Departures gone) {
      gone.ranks().forEach(group::departed);
    } else if (output instanceof JoinOutput.NewcomersWait) {
      group.newcomersWait();
    }
  }

  private void send(InetSocketAddress to, JoinMessage message) {
    if (process.is(to) || sockets.isAt(to)) {
      loop.execute(() -> received(sockets.address, message));
    } else if (message instanceof Departed departed) {
      if (!departed.base().equals(departuresBase)) {
        sendDepartures();
        departuresBase = departed.base();
      }
      // Usually many ranks leave at once: one frame names all of them.
      departures.computeIfAbsent(to, each -> new LinkedHashSet<>()).addAll(departed.ranks());
    } else {
      links.send(to, message);
    }
  }

  private void sendDepartures() {
    departures.forEach(
        (to, ranks) -> links.send(to, new Departed(departuresBase, List.copyOf(ranks))));
    departures.clear();
  }

  private void vote(JoinOutput.CastVote vote) {
    votes =
        votes
            .thenCompose(before -> ballots.vote(vote.base(), vote.request()))
            .thenAcceptAsync(
                ballot -> run(member.voted(vote.base(), ballot, System.nanoTime())), loop)
            .exceptionally(
                failure -> {
                  onLoop(() -> endJoin(FluxCclException.from(failure)), () -> {});
                  return null;
                });
  }

  private void schedule() {
    if (left != null || (member == null && root == null)) {
      return;
    }
    long now = System.nanoTime();
    long wake = member != null ? member.wakeNanos() : root.wakeNanos(now);
    if (timer == null || wake - timerNanos < 0) {
      if (timer != null) {
        timer.cancel(false);
      }
      timerNanos = wake;
      timer = loop.schedule(this::tick, Math.max(0, wake - now), TimeUnit.NANOSECONDS);
    }
  }

  private void tick() {
    timer = null;
    if (left != null) {
      return;
    }
    try {
      advance(System.nanoTime());
    } catch (RuntimeException e) {
      schedule();
      fail(e);
    }
  }

  private void advance(long now) {
    links.forEachReceived(process::refresh);
    if (member != null) {
      run(member.tick(now));
      if (now - listenNanos > LISTEN_AGAIN_NANOS && place.kind() == Kind.HEALING) {
        listenNanos = now;
        if (member.state() == State.MEMBER) {
          listenAtJobAddress();
        } else if (member.roster().isEmpty()) {
          findEntries();
        }
      }
    } else {
      root.tick(now);
      run(process.drain());
      checkRoot(now);
    }
  }

  /** A root without a rank leaves when its group has formed, or if no rank joins for long. */
  private void checkRoot(long now) {
    boolean hasEnded =
        root.state() == Coordinator.State.FORMED || root.state() == Coordinator.State.ENDED;
    if (root.hasJoins() && !hasEnded) {
      listenNanos = now;
    } else if (now - listenNanos > (hasEnded ? LISTEN_AGAIN_NANOS : UNUSED_NANOS)) {
      if (!hasEnded) {
        LOG.warn("no rank connects to the root at {}; it closes", jobAddress());
      }
      leave();
    }
  }

  /** Reads the members of the job on this machine from their files. */
  private void findEntries() {
    CompletableFuture.supplyAsync(() -> JobFile.ofJob(process.jobAddresses), BlockingTasks.EXECUTOR)
        .thenAcceptAsync(all -> all.forEach(own -> process.entries.addAll(own.addresses())), loop);
  }

  // ---- groups ----

  private void begin(Roster roster, int rank) {
    Optional<InvalidUsage> refusal = place.refusal(roster, options);
    if (refusal.isPresent()) {
      endJoin(refusal.get());
      run(member.fail(Failure.of(refusal.get()), System.nanoTime()));
      return;
    }
    TcpBootstrap group =
        joining != null && joining.first != null
            ? joining.first
            : new TcpBootstrap(rank, roster.size(), options, this);
    users.add(group);
    bases.add(roster);
    if (bases.size() > KEPT_BALLOTS) {
      Roster old = bases.remove();
      if (process.isOver(old, roster)) {
        ballots.forget(old.nonce());
      }
    }
    process.forgetAllBut(
        bases.stream().flatMap(each -> each.addresses().stream()).collect(Collectors.toSet()));
    messages.begin(group, roster);
    if (joining != null) {
      Joining done = joining;
      joining = null;
      if (!done.result.complete(group)) {
        group.closeAsync(); // the caller waits no longer
      }
      release(done);
    }
  }

  /** Adds what this process knows of the addresses to the time-out of a join without an answer. */
  private FluxCclException explained(Failure failure) {
    FluxCclException reason = failure.toException();
    boolean isUnanswered = reason instanceof Timeout && member.missing().isEmpty();
    if (!isUnanswered || !member.roster().isEmpty()) {
      return reason;
    }
    int attributed = place.rank() == 0 ? reason.rank() : Math.max(reason.rank(), place.rootRank());
    return Timeout.of(attributed, "%s (%s)", reason.getMessage(), links.troubleAt(jobAddress()));
  }

  /** The group of a bootstrap has failed, because of an error of this process. */
  void failed(TcpBootstrap failed, FluxCclException reason) {
    if (failed == messages.group() && member != null) {
      run(member.fail(Failure.of(reason), System.nanoTime()));
    }
  }

  // ---- what links report ----

  void received(InetSocketAddress peer, JoinMessage message) {
    long now = System.nanoTime();
    if (left != null) {
      return;
    }
    if (member != null) {
      run(member.received(peer, message, now));
    } else if (root != null) {
      if (message instanceof Join join) {
        root.join(peer, join, now);
      } else if (message instanceof Accept accept) {
        root.accept(peer, accept);
      } else if (message instanceof Refuse) {
        root.refused(peer, now);
      } else {
        process.heard(peer, now);
      }
      run(process.drain());
    }
  }

  void received(InetSocketAddress peer, Data data) {
    if (left == null && !messages.received(peer, data)) {
      String text = "%s: messages of over %s bytes arrived before the group formed here";
      endJoin(TransportFailure.of(place.rank(), text, describe(), WaitingBytes.LIMIT));
    }
  }

  /** A process has sent its goodbye. */
  void left(InetSocketAddress peer) {
    Roster roster = member == null ? Roster.NONE : member.roster();
    if (left == null && roster.lists(peer)) {
      Departed news = new Departed(roster.nonce(), List.of(roster.rankOf(peer)));
      run(member.received(peer, news, System.nanoTime()));
    }
  }

  /** A process does not listen any more: it has died, or it has left. */
  void refused(InetSocketAddress peer) {
    if (member != null && member.state() == State.MEMBER) {
      loop.schedule(() -> died(peer), NEWS_MILLIS, TimeUnit.MILLISECONDS);
    } else {
      died(peer);
    }
  }

  /** A process has died. */
  void died(InetSocketAddress peer) {
    long now = System.nanoTime();
    if (left != null || process.hasEnded(peer)) {
      return;
    }
    if (member != null) {
      run(member.refused(peer, now));
    } else {
      process.dead.add(peer);
      root.ended(peer, now);
      run(process.drain());
    }
  }

  /** This process has no descriptor for a socket. */
  void ranOut(String why) {
    fail(TransportFailure.of(place.rank(), "%s %s", describe(), why));
  }

  /** The process at one of the job's addresses answers, and does not refuse this one. */
  void answered(InetSocketAddress to) {
    isRefused &= !isShared(to);
  }

  /**
   * Another service, or a job with another secret, is at one of the job's addresses. An earlier job
   * may be about to release the port, and the refusal may be forged. So the join fails only if
   * refusals persist, and only the first one: a survivor knows the secret, and needs no address.
   */
  void refusedAt(InetSocketAddress to, String why) {
    String text =
        Text.of("%s: initialize: no process of this job is at %s: %s", describe(), to, why);
    long now = System.nanoTime();
    if (!isRefused) {
      isRefused = true;
      refusedSinceNanos = now;
      RankLog.line(place.rank(), () -> LOG.warn("{}", text));
    }
    boolean isNewcomer = joining != null && member != null && member.roster().isEmpty();
    if (isNewcomer
        && now - refusedSinceNanos >= Math.min(REFUSED_NANOS, joining.limit.toNanos() / 4)
        && member.state() == State.SEEKING) {
      endJoin(new InvalidUsage(text));
    }
  }

  // ---- dumps ----

  /**
   * Returns the answer to a dump request. Must not wait for user code.
   *
   * @param all whether with all calls that are kept
   * @param at the local address of the connection
   */
  BootstrapFrame answer(boolean all, InetSocketAddress at) {
    boolean isShared = sockets.isShared(at.getPort());
    TcpBootstrap group = messages.group();
    if (group == null) {
      return new DumpMissing(root != null ? root.missing() : member.missing());
    }
    return isShared ? new DumpMembers(group.roster()) : group.reports.answer(all);
  }

  // ---- leaving ----

  /** Adds a user: the job is left with the last one. */
  void use(Object user) {
    users.add(user);
  }

  /**
   * Removes a user.
   *
   * @return completes when this process has left the job, or at once if it has other users
   */
  CompletableFuture<Void> release(Object user) {
    users.remove(user);
    boolean isRunning = user == messages.group() && member.state() == State.MEMBER;
    boolean isOver = users.isEmpty() || (root != null && users.equals(Set.of(Job.class)));
    return isRunning || isOver ? leave() : CompletableFuture.completedFuture(null);
  }

  /** Leaves the job, without waiting. A pending join fails. Idempotent. */
  @Override
  public void close() {
    onLoop(
        () -> {
          release(Job.class);
          endJoin(closed());
        },
        () -> LOG.trace("the job was closed before"));
  }

  private CompletableFuture<Void> leave() {
    if (left != null) {
      return left;
    }
    CompletableFuture<Void> done = new CompletableFuture<>();
    if (member != null) {
      run(member.leave(System.nanoTime()));
      sendDepartures();
    }
    left = done;
    if (timer != null) {
      timer.cancel(false);
    }
    endJoin(closed());
    CompletableFuture<Void> flushed = links.flush();
    ScheduledFuture<?> grace =
        loop.schedule(() -> flushed.complete(null), NEWS_GRACE_MILLIS, TimeUnit.MILLISECONDS);
    flushed.thenRun(
        () -> {
          grace.cancel(false);
          sendGoodbye(done);
        });
    return done;
  }

  private void sendGoodbye(CompletableFuture<Void> done) {
    sockets.channels.close(channel -> channel instanceof ServerChannel);
    links.sendGoodbye();
    // Sockets still in their handshake need no goodbye.
    sockets.channels.close(channel -> channel.pipeline().get(Handshake.class) != null);
    TcpBootstrap group = messages.group();
    boolean isSilent = group != null && !group.silentRanks().isEmpty();
    ScheduledFuture<?> grace =
        loop.schedule(
            () -> sockets.channels.close(),
            isSilent ? GRACE_MILLIS / 2 : GRACE_MILLIS,
            TimeUnit.MILLISECONDS);
    sockets
        .channels
        .newCloseFuture()
        .addListener(
            all -> {
              grace.cancel(false);
              ended.complete(null);
              sockets.release().whenComplete((over, failure) -> done.complete(null));
            });
  }

  /** Closes every socket and sends nothing, as if the process had died. */
  void kill() {
    if (left == null) {
      left = new CompletableFuture<>();
    }
    if (timer != null) {
      timer.cancel(false);
    }
    endJoin(closed());
    links.stop(RemoteFailure.of(place.rank(), "%s was killed", describe()));
    ended.complete(null);
    sockets
        .channels
        .close()
        .addListener(all -> sockets.release().thenRun(() -> left.complete(null)));
  }
}
