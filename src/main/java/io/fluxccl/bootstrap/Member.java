// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Missed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Refuse;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.CastVote;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.GroupFailed;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Joined;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * One process of a job: seeks a group, is a member of it, and seeks the next one after it has
 * failed. Pure: events and times in, {@link JoinOutput} out. The protocol is described in {@link
 * Coordinator}, which a process runs beside its member while it is its turn.
 */
final class Member {
  /** The states of a member. The first three are those of its {@link Seeker}. */
  enum State {
    /** Has no answer from a coordinator. */
    SEEKING,
    /** A coordinator collects members. */
    WAITING,
    /** Has accepted a proposal. */
    ACCEPTED,
    /** Is in a group. */
    MEMBER,
    /** The group has failed, or the process has not begun to join. */
    IDLE,
    ENDED
  }

  private final LocalProcess process;
  private State state = State.IDLE;

  /** The roster of the last epoch. */
  private Roster base = Roster.NONE;

  private GroupWatch watch;
  private JoinRequest request;

  /** Present while this process joins. */
  private Optional<Seeker> seeker = Optional.empty();

  private Set<Integer> lost = new HashSet<>();
  private Optional<Missed> missed = Optional.empty();

  /** The failure of the last group, if it has failed. */
  private Optional<Failure> failure = Optional.empty();

  private long nowNanos;
  private long beatNanos;

  /** Creates the machine of a process that has not begun to join. */
  Member(LocalProcess process) {
    this.process = process;
    this.watch = new GroupWatch(process, base, 0);
  }

  State state() {
    return seeker.map(Seeker::state).orElse(state);
  }

  /** Returns the roster of the last epoch. */
  Roster roster() {
    return base;
  }

  /** Returns the ranks that the coordinator misses, as far as this process knows. */
  List<Integer> missing() {
    return seeker.map(Seeker::missing).orElse(List.of());
  }

  // ---- calls of the process ----

  /** Joins a group: the first one, or the next one after a failure. */
  List<JoinOutput> join(JoinRequest wanted, long now) {
    enter(now);
    request = wanted;
    Seeker next = new Seeker(process, base, wanted, lost, Term.NONE, now);
    seeker = Optional.of(next);
    if (missed.isPresent()) {
      miss(missed.get(), now);
    } else {
      next.seek(now);
      Map<InetSocketAddress, Join> early = new LinkedHashMap<>(watch.standby());
      watch.standby().clear();
      early.forEach((from, join) -> next.joined(from, join, now));
    }
    return process.drain();
  }

  /** Forms the first epoch, because this process is rank 0 and listens at the job's address. */
  List<JoinOutput> beginRoot(long now) {
    enter(now);
    seeker.filter(own -> isJoining()).ifPresent(own -> own.beginRoot(now));
    return process.drain();
  }

  /** Ends the group, because of an error of this process. */
  List<JoinOutput> fail(Failure reason, long now) {
    enter(now);
    failGroup(reason, now);
    return process.drain();
  }

  /** Ends a join, because of an error of this process. */
  List<JoinOutput> abandon(Failure reason, long now) {
    enter(now);
    if (isJoining()) {
      seeker.get().end(reason);
    }
    return process.drain();
  }

  /** Leaves in good order. */
  List<JoinOutput> leave(long now) {
    enter(now);
    if (!base.isEmpty() && seeker.isEmpty()) {
      watch.leave();
    }
    seeker = Optional.empty();
    state = State.ENDED;
    return process.drain();
  }

  // ---- events ----

  /** The port of a process refuses connections: it has died. */
  List<JoinOutput> refused(InetSocketAddress peer, long now) {
    enter(now);
    // Another process may listen at a job's address later.
    boolean isProcess = !process.jobAddresses.contains(peer);
    if (state() != State.ENDED && isProcess && !process.hasEnded(peer)) {
      process.dead.add(peer);
      watch.standby().remove(peer);
      seeker.ifPresent(own -> own.ended(peer, now));
      if (base.lists(peer)) {
        failGroup(watch.deathOf(peer), now);
      }
    }
    return process.drain();
  }

  /** A vote was cast; see {@link CastVote}. */
  List<JoinOutput> voted(Nonce roster, Ballot ballot, long now) {
    enter(now);
    if (isJoining() && roster.equals(base.nonce())) {
      seeker.get().voted(ballot, now);
    }
    return process.drain();
  }

  /** Time has passed. */
  List<JoinOutput> tick(long now) {
    enter(now);
    if (isJoining()) {
      seeker.get().tick(now);
    }
    if (now >= beatNanos) {
      long interval = process.rules.intervalNanos();
      if (beatNanos != 0 && now - beatNanos > interval && !isIdle()) {
        process.delayed(now - beatNanos, now);
      }
      beatNanos = now + interval;
      if (isJoining()) {
        seeker.get().beat(now);
      } else if (state() == State.MEMBER) {
        watch.beat(now).ifPresent(failure -> failGroup(failure, now));
      }
    }
    return process.drain();
  }

  /** Returns when {@link #tick} is to be called at the latest. */
  long wakeNanos() {
    return isJoining() ? Math.min(beatNanos, seeker.get().wakeNanos(nowNanos)) : beatNanos;
  }

  /** A message has arrived from an authenticated process. */
  List<JoinOutput> received(InetSocketAddress from, JoinMessage message, long now) {
    enter(now);
    if (state() != State.ENDED && !process.hasEnded(from)) {
      process.heard(from, now);
      if (!handleInGroup(from, message, now) && isJoining()) {
        handleJoining(from, message, seeker.get(), now);
      }
    }
    return process.drain();
  }

  private void enter(long now) {
    if (nowNanos != 0 && now - nowNanos > process.rules.leaseNanos()) {
      process.excuse(nowNanos, now); // this process was suspended
      seeker.filter(own -> isJoining()).ifPresent(own -> own.resume(now));
    } else if (isIdle()) {
      process.delayed(now - nowNanos, now);
    }
    nowNanos = now;
  }

  /**
   * Returns whether the group has failed, and this process does not join the next one yet. Then the
   * other members may have no reason to send, so their silence does not count.
   */
  private boolean isIdle() {
    return failure.isPresent() && !isJoining();
  }

  private boolean isJoining() {
    return seeker.isPresent() && state() != State.ENDED;
  }

  private int rank() {
    return base.rankOf(process.self.address());
  }

  // ---- messages ----

  /** Handles a message that concerns every member. Returns whether it has. */
  private boolean handleInGroup(InetSocketAddress from, JoinMessage message, long now) {
    if (message instanceof Join join) {
      handleJoin(from, join, now);
    } else if (message instanceof Waiting waiting) {
      handleWaiting(from, waiting, now);
    } else if (message instanceof Missed news) {
      handleMissed(news, now);
    } else if (message instanceof Beat beat) {
      handleBeat(from, beat, now);
    } else if (message instanceof Failed failed) {
      if (failed.base().equals(base.nonce())) {
        failGroup(failed.failure(), now);
      }
    } else if (message instanceof Departed departed) {
      if (departed.base().equals(base.nonce())) {
        List<InetSocketAddress> news = watch.departed(departed, now);
        seeker.ifPresent(own -> news.forEach(each -> own.ended(each, now)));
      }
    } else if (message instanceof Propose propose
        && (!isJoining() || (!base.isEmpty() && !propose.base().equals(base.nonce())))) {
      informLate(from);
    } else {
      return false;
    }
    return true;
  }

  private void handleJoining(InetSocketAddress from, JoinMessage message, Seeker own, long now) {
    if (message instanceof Propose propose) {
      own.proposed(from, propose, now);
    } else if (message instanceof Redirect redirect) {
      own.redirected(redirect, now);
    } else if (message instanceof Accept accept) {
      own.accepted(from, accept);
    } else if (message instanceof Refuse refuse) {
      own.refused(from, refuse, now);
    } else if (message instanceof Formed formed) {
      handleFormed(formed.roster(), own, now);
    } else if (message instanceof Rejected rejected) {
      own.rejected(from, rejected.failure());
    }
  }

  private void handleJoin(InetSocketAddress from, Join join, long now) {
    boolean isOther = !join.isNewcomer() && !join.base().equals(base.nonce());
    boolean renounces = join.isNewcomer() && join.epoch() > base.epoch() && base.lists(from);
    if (renounces && process.renounced.add(from)) {
      seeker.ifPresent(own -> own.ended(from, now));
    }
    boolean isLate =
        join.isNewcomer() ? base.lists(from) && !renounces : join.epoch() < base.epoch();
    if (isLate) {
      informLate(from);
    } else if (isOther) {
      askAhead(from, join.epoch() > base.epoch());
    } else if (isJoining()) {
      seeker.get().joined(from, join, now);
    } else if (join.isNewcomer() && !base.isEmpty()) {
      watch.admit(from, join, request);
    } else if (!join.isNewcomer()) {
      failBecauseOf(from, now);
      watch.standby().put(from, join);
      sendBeat(from);
    }
  }

  private void handleWaiting(InetSocketAddress from, Waiting waiting, long now) {
    if (isJoining() && base.isEmpty()) {
      seeker.get().called(from, waiting, now);
    } else if (waiting.term().epoch() > base.epoch() + 1) {
      askAhead(from, true);
    } else if (waiting.term().epoch() <= base.epoch()) {
      informLate(from);
    } else if (waiting.base().equals(base.nonce()) && !waiting.standby()) {
      failBecauseOf(from, now);
      seeker
          .filter(own -> isJoining())
          .ifPresentOrElse(own -> own.called(from, waiting, now), () -> sendBeat(from));
    }
  }

  private void handleBeat(InetSocketAddress from, Beat beat, long now) {
    if (beat.epoch() > 0 && beat.epoch() < base.epoch()) {
      informLate(from);
    } else if (beat.epoch() > base.epoch()) {
      askAhead(from, true);
    } else if (state() == State.MEMBER) {
      watch.received(from, beat, now);
    } else if (beat.base().equals(base.nonce())) {
      // The announcement was lost, for example with a rank that left.
      failure.ifPresent(each -> process.send(from, new Failed(base.nonce(), each)));
    }
  }

  /** Asks a process of a later epoch for the roster that this process has not received. */
  private void askAhead(InetSocketAddress peer, boolean isAhead) {
    if (isAhead && isJoining() && !base.isEmpty()) {
      seeker.get().ask(peer);
    }
  }

  // ---- in a group ----

  private void handleFormed(Roster roster, Seeker own, long now) {
    if (!own.expects(roster)) {
      return;
    }
    base = roster;
    failure = Optional.empty();
    state = State.MEMBER;
    seeker = Optional.empty();
    lost = new HashSet<>();
    process.renounced.clear();
    missed = Optional.empty();
    watch = new GroupWatch(process, roster, request.kind() == Kind.HEALING ? request.size() : 0);
    roster.addresses().forEach(each -> process.heard(each, now));
    process.output(new Joined(roster, rank()));
    roster.addresses().stream()
        .filter(process.dead::contains)
        .findFirst()
        .ifPresent(each -> failGroup(watch.deathOf(each), now));
  }

  /** Fails the group because another process has ended it. */
  private void failBecauseOf(InetSocketAddress peer, long now) {
    int origin = base.rankOf(peer);
    String text = Text.of("rank %s ended generation %s", origin, base.epoch());
    failGroup(new Failure(ErrorCode.ABORTED, origin, text), now);
  }

  private void failGroup(Failure reason, long now) {
    if (state() != State.MEMBER) {
      return;
    }
    state = State.IDLE;
    failure = Optional.of(reason);
    boolean namesOther = reason.rank() != FluxCclException.NO_RANK && reason.rank() != rank();
    if (namesOther && reason.code() != ErrorCode.ABORTED) {
      lost.add(reason.rank());
    }
    InetSocketAddress watcher = watch.watcher();
    if (!process.is(watcher)) {
      process.watchOnly(Set.of(watcher));
    }
    // The next coordinator notifies the others, also if the watcher is silent.
    int next = process.rules.coordinator(base, Seeker.available(process, base, lost, now));
    Collection<InetSocketAddress> notified =
        next == rank() ? watch.others() : new LinkedHashSet<>(List.of(base.address(next), watcher));
    notified.forEach(each -> process.send(each, new Failed(base.nonce(), reason)));
    process.output(new GroupFailed(reason));
  }

  private void sendBeat(InetSocketAddress to) {
    process.send(to, Beat.of(base));
  }

  // ---- being late ----

  /** Answers a process of an earlier epoch. */
  private void informLate(InetSocketAddress peer) {
    if (base.lists(peer)) {
      process.send(peer, new Formed(base));
    } else if (!base.isEmpty()) {
      process.send(peer, process.missed(base));
    }
  }

  private void handleMissed(Missed news, long now) {
    if (!base.isEmpty() && news.epoch() > base.epoch() && !news.members().isEmpty()) {
      missed = Optional.of(news);
      failGroup(request.missed(news.epoch(), rank()), now);
      if (isJoining()) {
        miss(news, now);
      }
    }
  }

  /** Continues as a newcomer, or ends if the group admits none. */
  private void miss(Missed news, long now) {
    if (request.kind() != Kind.HEALING) {
      seeker.get().end(request.missed(news.epoch(), rank()));
      return;
    }
    seeker.get().stepDown(news.members().get(0));
    process.entries.addAll(news.members());
    base = Roster.NONE;
    failure = Optional.empty();
    lost = new HashSet<>();
    missed = Optional.empty();
    Term known = new Term(news.epoch(), 0, Roster.NEWCOMER);
    seeker = Optional.of(new Seeker(process, base, request, lost, known, now));
    seeker.get().follow(news.members());
    seeker.get().seek(now);
  }
}
