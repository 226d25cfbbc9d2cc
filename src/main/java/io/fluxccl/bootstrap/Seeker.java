// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Refuse;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.CastVote;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Ended;
import io.fluxccl.bootstrap.Member.State;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.IntPredicate;

/**
 * A member's search for the group after a base: finds the coordinator, or becomes it, votes and
 * joins. A survivor computes the coordinator. A newcomer, whose base is {@link Roster#NONE}, asks
 * all addresses that it knows.
 */
final class Seeker {
  private static final Waiting NO_ANSWER = noAnswer("");

  /** The number of attempts at an epoch after which coordinators take long turns. */
  private static final int SHORT_TURNS = 4;

  private final LocalProcess process;
  private final Roster base;
  private final JoinRequest request;

  /** The ranks to which the failure of the base is attributed. */
  private final Set<Integer> lost;

  private State state = State.SEEKING;

  private final Term known;

  /** The highest term that this process knows. It follows that term's coordinator. */
  private Term term;

  private long deadlineNanos;

  /** When to seek again, because the coordinator of the highest term does not answer here. */
  private long seekNanos = Long.MAX_VALUE;

  private long askedNanos;

  /** When the process that this newcomer follows has last answered it. */
  private long answeredNanos;

  private boolean isRoot;
  private Optional<InetSocketAddress> target = Optional.empty();
  private Optional<Coordinator> coordinator = Optional.empty();
  private Optional<Join> join = Optional.empty();
  private Optional<Propose> proposal = Optional.empty();
  private Waiting answer = NO_ANSWER;

  /** The death of the process that forms the first group, until another one does. */
  private Optional<Failure> death = Optional.empty();

  /**
   * @param known the lowest term that this process follows
   */
  Seeker(
      LocalProcess process,
      Roster base,
      JoinRequest request,
      Set<Integer> lost,
      Term known,
      long now) {
    this.process = process;
    this.base = base;
    this.request = request;
    this.lost = lost;
    this.known = known;
    this.term = known;
    this.deadlineNanos = now + request.limit().toNanos();
  }

  private static Waiting noAnswer(String note) {
    return new Waiting(Term.NONE, Roster.NONE.nonce(), false, List.of(), List.of(), note);
  }

  State state() {
    return state;
  }

  List<Integer> missing() {
    return answer.missing();
  }

  boolean follows(InetSocketAddress peer) {
    return target.filter(peer::equals).isPresent();
  }

  /** Seeks a group that has formed without this process, and whose members may admit it. */
  void follow(List<InetSocketAddress> members) {
    answer = new Waiting(Term.NONE, Roster.NONE.nonce(), false, List.of(), members, "");
  }

  /** Returns whether a group is the one that this process seeks. */
  boolean expects(Roster roster) {
    boolean isNext =
        base.isEmpty() ? roster.epoch() >= known.epoch() : roster.epoch() == base.epoch() + 1;
    return isNext && roster.lists(process.self.address());
  }

  // ---- time ----

  void tick(long now) {
    if (now >= deadlineNanos) {
      expire();
    } else if (target.filter(each -> isLost(each, now)).isPresent()) {
      loseCoordinator(now);
    } else if (now >= seekNanos) {
      seek(now);
    }
    coordinator.ifPresent(own -> own.tick(now));
  }

  /** A process that newcomers follow answers them repeatedly, as long as it is their turn. */
  private boolean isLost(InetSocketAddress followed, long now) {
    boolean isAnswered = base.isEmpty() && !process.is(followed);
    return process.isSilent(followed, now)
        || (isAnswered && process.rules.isSilent(now - answeredNanos));
  }

  long wakeNanos(long now) {
    return coordinator
        .map(own -> Math.min(deadlineNanos, own.wakeNanos(now)))
        .orElse(deadlineNanos);
  }

  /** This process was suspended. It gets time to learn what it has missed. */
  void resume(long now) {
    if (deadlineNanos != Long.MAX_VALUE) {
      deadlineNanos = Math.max(deadlineNanos, now + process.rules.leaseNanos());
    }
    answeredNanos = now;
    coordinator.ifPresent(own -> own.resume(now));
  }

  void beat(long now) {
    if (state != State.SEEKING) {
      Beat beat = Beat.of(base);
      target.ifPresent(to -> process.send(to, beat));
    }
    // A join is repeated once a lease: the coordinator may have lost it.
    if (state == State.SEEKING || now - askedNanos > process.rules.leaseNanos()) {
      askedNanos = now;
      if (base.isEmpty()) {
        askAll();
      } else {
        join.ifPresent(each -> target.ifPresent(to -> process.send(to, each)));
      }
    }
  }

  private void expire() {
    Set<InetSocketAddress> asked = target.map(Set::of).orElse(process.jobAddresses);
    long epoch = Math.max(base.epoch() + 1, term.epoch());
    Failure failure = death.orElseGet(() -> request.timeout(epoch, term.rank(), asked, answer));
    coordinator.filter(own -> base.isEmpty()).ifPresent(own -> own.end(failure));
    end(failure);
  }

  void rejected(InetSocketAddress from, Failure failure) {
    if (target.isEmpty() || follows(from)) {
      end(failure);
    }
  }

  void end(Failure failure) {
    state = State.ENDED;
    coordinator = Optional.empty();
    process.output(new Ended(failure));
  }

  // ---- the coordinator ----

  /** Forms the first epoch, unless a group is known. */
  void beginRoot(long now) {
    isRoot = base.isEmpty();
    if (isRoot && target.isEmpty()) {
      seek(now);
    }
  }

  /** Begins to seek, or seeks another coordinator. */
  void seek(long now) {
    state = State.SEEKING;
    target = Optional.empty();
    seekNanos = Long.MAX_VALUE;
    if (deadlineNanos == Long.MAX_VALUE) {
      deadlineNanos = now + request.limit().toNanos();
    }
    if (base.isEmpty()) {
      if (isRoot && coordinator.isEmpty()) {
        coordinate(new Term(1, 1, 0), now);
      }
      askAll();
    } else {
      int attempt = term.epoch() > base.epoch() ? term.attempt() : 0;
      int next = process.rules.coordinator(base, available(process, base, lost, now));
      joinUnderPromise(new Term(base.epoch() + 1, attempt + 1, next), now);
    }
  }

  /** Returns the ranks that may coordinate the epoch after a base. */
  static IntPredicate available(LocalProcess process, Roster base, Set<Integer> lost, long now) {
    return rank -> {
      InetSocketAddress peer = base.address(rank);
      boolean isAway = lost.contains(rank) || process.isOut(peer) || process.isSilent(peer, now);
      return process.is(peer) || !isAway;
    };
  }

  private void loseCoordinator(long now) {
    if (base.isEmpty()) {
      term = new Term(term.epoch(), 0, Roster.NEWCOMER);
      if (request.kind() == Kind.FIXED && process.hasEnded(target.get())) {
        death = Optional.of(request.rootDeath());
        deadlineNanos = Math.min(deadlineNanos, now + JoinRules.RETURN_NANOS);
      }
    }
    seek(now);
  }

  /** Follows the coordinator of a term if that is the highest one, and the coordinator lives. */
  private void learn(Term other, long now) {
    if (other.rank() < 0
        || other.rank() >= base.size()
        || other.epoch() != base.epoch() + 1
        || !other.isAfter(term)) {
      return;
    }
    term = other;
    if (available(process, base, lost, now).test(other.rank())) {
      joinUnderPromise(other, now);
    } else if (process.isOut(base.address(other.rank()))) {
      seek(now);
    } else {
      // It may answer other members. Two coordinators that can't reach each other take turns.
      // Later turns are as long as a coordinator waits for late members and replacements.
      long turn = (1 + rank()) * process.rules.intervalNanos();
      long wait = Math.max(JoinRules.LATE_NANOS, request.replacementTimeout().toNanos());
      seekNanos = now + turn + (other.attempt() > SHORT_TURNS ? wait : 0);
      stepDown(base.address(other.rank()));
      state = State.SEEKING;
      target = Optional.empty(); // a vote for this term must not reach another coordinator
      join = Optional.empty();
    }
  }

  private int rank() {
    return base.rankOf(process.self.address());
  }

  /** Promises to accept no lower term; the join follows when the promise is kept. */
  private void joinUnderPromise(Term next, long now) {
    InetSocketAddress address = base.address(next.rank());
    term = next;
    state = State.SEEKING;
    seekNanos = Long.MAX_VALUE;
    target = Optional.of(address);
    join = Optional.empty();
    process.asked(address, now);
    if (!process.is(address)) {
      stepDown(address);
    } else if (coordinator.isEmpty()) {
      coordinate(next, now);
    }
    process.output(new CastVote(base.nonce(), Ballot.promise(next)));
  }

  private void coordinate(Term own, long now) {
    coordinator = Optional.of(new Coordinator(process, base, own, Optional.of(request), now));
  }

  void stepDown(InetSocketAddress to) {
    coordinator.ifPresent(own -> own.stepDown(term, to));
    coordinator = Optional.empty();
  }

  private Join joinUnder(Term promised, Ballot ballot) {
    long epoch = base.isEmpty() ? known.epoch() : base.epoch();
    return new Join(
        process.self, epoch, base.nonce(), promised, ballot, request, List.copyOf(lost));
  }

  private void askAll() {
    Set<InetSocketAddress> asked = new LinkedHashSet<>(process.jobAddresses);
    asked.addAll(process.entries);
    target.ifPresent(asked::add);
    Set<InetSocketAddress> members = new LinkedHashSet<>(answer.others());
    // The members of an accepted proposal know whether their group has formed.
    proposal.ifPresent(each -> members.addAll(each.roster().entries()));
    members.removeIf(process::is);
    asked.addAll(members);
    asked.removeIf(process::hasEnded);
    asked.forEach(this::ask);
    boolean hasEnded = !members.isEmpty() && process.dead.containsAll(members);
    if (target.isEmpty() && hasEnded && known.epoch() > 0) {
      end(request.missed(known.epoch(), Roster.NEWCOMER)); // no member can admit this process
    } else if (target.isEmpty() && hasEnded) {
      term = known; // the group that this process waited for has ended: a new job may begin
    }
  }

  /** Asks a process for its coordinator, or for the group that has formed. Promises nothing. */
  void ask(InetSocketAddress address) {
    process.send(address, joinUnder(base.isEmpty() ? term : Term.NONE, Ballot.EMPTY));
  }

  // ---- events ----

  /** A process has died or left. */
  void ended(InetSocketAddress peer, long now) {
    coordinator.ifPresent(own -> own.ended(peer, now));
    if (follows(peer)) {
      loseCoordinator(now);
    }
  }

  void voted(Ballot ballot, long now) {
    learn(ballot.promised(), now); // another process of this host may have promised a higher term
    boolean isProposed = proposal.filter(each -> each.term().equals(term)).isPresent();
    if (!ballot.promised().equals(term) || target.isEmpty()) {
      return;
    }
    if (isProposed && ballot.accepted().equals(term)) {
      state = State.ACCEPTED;
      process.send(target.get(), new Accept(term));
    } else {
      join = Optional.of(joinUnder(term, ballot));
      process.send(target.get(), join.get());
    }
  }

  /** A process joins the group after the same base, or is a newcomer. */
  void joined(InetSocketAddress from, Join other, long now) {
    if (!other.isNewcomer()) {
      learn(other.term(), now);
    }
    if (coordinator.isPresent()) {
      coordinator.get().join(from, other, now);
    } else {
      target
          .filter(each -> !process.is(each))
          .ifPresent(each -> process.send(from, new Redirect(term, each)));
    }
  }

  void accepted(InetSocketAddress from, Accept accept) {
    coordinator.ifPresent(own -> own.accept(from, accept));
  }

  void refused(InetSocketAddress from, Refuse refuse, long now) {
    coordinator.ifPresent(own -> own.refused(from, now));
    learn(refuse.promised(), now);
  }

  void redirected(Redirect redirect, long now) {
    learn(redirect.term(), now);
    if (base.isEmpty() && !follows(redirect.coordinator())) {
      ask(redirect.coordinator());
    }
  }

  /** A coordinator answers this newcomer, or calls this survivor. */
  void called(InetSocketAddress from, Waiting call, long now) {
    lost.remove(base.rankOf(from)); // it lives, and may coordinate
    if (base.isEmpty()) {
      followAsNewcomer(from, call, now);
    } else if (call.term().isAfter(term)) {
      learn(call.term(), now);
    } else if (call.term().compareTo(term) < 0) {
      process.send(from, new Refuse(term));
    } else {
      answer = call;
      state = state == State.SEEKING && join.isPresent() ? State.WAITING : state;
    }
  }

  private void followAsNewcomer(InetSocketAddress from, Waiting waiting, long now) {
    boolean isTarget = follows(from);
    // A process that has accepted a proposal leaves it only for a group of a later epoch.
    boolean isFree = state != State.ACCEPTED || waiting.term().epoch() > term.epoch();
    boolean isPreferred =
        isTarget || target.isEmpty() || (isFree && process.rules.prefers(waiting.term(), term));
    if (target.isEmpty() && waiting.term().epoch() <= known.epoch()) {
      String note = "the job was started again at %s; start this process again, too";
      answer = noAnswer(Text.of(note, from));
    }
    if (!isPreferred || waiting.term().compareTo(term) < 0) {
      return;
    }
    if (!isTarget) {
      if (!process.is(from)) {
        stepDown(from);
      }
      target = Optional.of(from);
      ask(from);
    }
    if (waiting.standby()) {
      deadlineNanos = Long.MAX_VALUE;
    } else if (death.isPresent() || deadlineNanos == Long.MAX_VALUE) {
      deadlineNanos = now + request.limit().toNanos();
    }
    death = Optional.empty();
    answeredNanos = now;
    state = state == State.SEEKING || waiting.term().isAfter(term) ? State.WAITING : state;
    term = waiting.term();
    answer = waiting;
  }

  void proposed(InetSocketAddress from, Propose propose, long now) {
    // Two processes may form first epochs, at two of the job's addresses, under equal terms.
    boolean isTaken = state == State.ACCEPTED && !follows(from) && propose.term().equals(term);
    if (propose.term().compareTo(term) < 0 || isTaken) {
      process.send(from, new Refuse(term));
      return;
    }
    if (!process.is(from)) {
      stepDown(from);
    }
    term = propose.term();
    target = Optional.of(from);
    proposal = Optional.of(propose);
    answeredNanos = now;
    if (base.isEmpty()) {
      state = State.ACCEPTED;
      process.send(from, new Accept(term));
    } else {
      process.output(new CastVote(base.nonce(), Ballot.accept(term, propose.roster())));
    }
  }
}
