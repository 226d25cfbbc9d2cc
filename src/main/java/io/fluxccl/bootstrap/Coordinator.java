// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.JoinRules.Electorate;
import io.fluxccl.bootstrap.JoinRules.Electorate.Count;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/**
 * Forms one epoch: collects joins, proposes a roster, and announces the group. Pure: events and
 * times in, {@link JoinOutput} out. The caller is a {@link Member}, or the root of a unique id.
 *
 * <h2>The protocol</h2>
 *
 * <p>Each epoch is decided by the members of the last one (the base), as in Paxos: a {@link Term}
 * is a ballot, a {@link Roster} is a value, a host is an acceptor (a {@link Ballot}). The first
 * epoch is decided by the process at the job's address alone. No rule depends on a clock for
 * safety: the lease only determines when a process seeks another coordinator.
 *
 * <pre>
 * member                              coordinator
 *   promise(term) on its host
 *   Join(term, ballot)         ───►   COLLECTING
 *                              ◄───   Waiting(term), each heartbeat, also to members not joined yet
 *                              ◄───   Propose(term, roster)            PROPOSING
 *   accept(term, roster) on its host
 *   Accept(term)               ───►
 *                              ◄───   Formed(roster)                   FORMED
 * </pre>
 *
 * <table>
 * <caption>Transitions of a coordinator</caption>
 * <tr><th>state</th><th>event</th><th>next state, messages</th></tr>
 * <tr><td>COLLECTING</td><td>a quorum has joined, and one of its hosts has accepted a roster</td>
 *     <td>PROPOSING that roster again</td></tr>
 * <tr><td></td><td>a quorum has joined, no live member is missing, and the ranks suffice</td>
 *     <td>PROPOSING a new roster</td></tr>
 * <tr><td>PROPOSING</td><td>all members of a new roster accept; for an old one, a quorum</td>
 *     <td>FORMED; Formed, Missed, Redirect</td></tr>
 * <tr><td></td><td>a member refuses, ends, or is silent for a lease; this process was suspended</td>
 *     <td>COLLECTING under the next term</td></tr>
 * <tr><td>any</td><td>the member of this process follows a higher term</td>
 *     <td>ENDED; Redirect</td></tr>
 * <tr><td>first epoch</td><td>the limit passes, or a rank of a fixed group dies and stays away</td>
 *     <td>ENDED; Rejected</td></tr>
 * </table>
 *
 * <table>
 * <caption>Transitions of a member</caption>
 * <tr><th>state</th><th>event</th><th>next state, messages</th></tr>
 * <tr><td>IDLE</td><td>join is called</td><td>SEEKING; Join</td></tr>
 * <tr><td>SEEKING</td><td>Waiting of the coordinator</td><td>WAITING</td></tr>
 * <tr><td>SEEKING, WAITING</td><td>Propose</td><td>ACCEPTED; Accept</td></tr>
 * <tr><td>SEEKING, WAITING, ACCEPTED</td><td>Formed that lists it</td><td>MEMBER</td></tr>
 * <tr><td></td><td>the coordinator is dead or silent, or a higher term is known</td>
 *     <td>SEEKING under a higher term</td></tr>
 * <tr><td></td><td>Missed</td><td>SEEKING as a newcomer, or ENDED</td></tr>
 * <tr><td></td><td>the limit passes; Rejected</td><td>ENDED</td></tr>
 * <tr><td>MEMBER</td><td>a rank dies or is silent too long, Failed, a call of the next epoch</td>
 *     <td>IDLE; Failed</td></tr>
 * </table>
 *
 * <h2>Invariants</h2>
 *
 * <ul>
 *   <li>At most one group forms after a base. A dead voter is the exception: if all voters of a
 *       group have died, and no host is unknown, the live members of the base form another one.
 *   <li>A host never accepts a term below its promise. No process enters an epoch that is not
 *       higher than its last one.
 *   <li>A process is in SEEKING, WAITING and ACCEPTED for at most its limit, and a lease more if it
 *       was suspended. A newcomer that waits for a running group to end has no limit.
 *   <li>A member that did not get Formed gets it from any member of the group that it asks.
 *   <li>A newcomer never votes, and a newcomer with other settings is refused alone.
 * </ul>
 */
final class Coordinator {
  /** The states of a coordinator. */
  enum State {
    COLLECTING,
    PROPOSING,
    FORMED,
    ENDED
  }

  /** The time that a proposal needs for each rank, on a busy machine, beside a lease. */
  private static final long ACCEPT_NANOS = TimeUnit.MILLISECONDS.toNanos(10);

  /** The most missing ranks that are sent; a message with more could not be read anyway. */
  private static final int MAX_MISSING = 64;

  private final LocalProcess process;
  private final JoinRules rules;
  private final Roster base;
  private final int rank;
  private final Map<InetSocketAddress, Join> joins = new LinkedHashMap<>();
  private final Set<InetSocketAddress> accepts = new HashSet<>();

  /** The terms under which this coordinator proposed a roster of its own, and formed no group. */
  private final Set<Term> abandoned = new HashSet<>();

  /** For each rank of a first join that has died, the time of its death. */
  private final Map<Integer, Long> diedNanos = new HashMap<>();

  private State state = State.COLLECTING;
  private Term term;
  private Optional<JoinRequest> request;
  private Roster roster = Roster.NONE;
  private boolean adopted;
  private String note = "";
  private Optional<Waiting> answer = Optional.empty();
  private Duration replacementTimeout = Duration.ZERO;
  private long beganNanos;
  private long proposedNanos;
  private long beatNanos;

  /**
   * @param base the roster of the last epoch, or {@link Roster#NONE} to form the first one
   * @param request the request of this process; empty if it is a root without a rank, which then
   *     takes the request of the first process that joins
   */
  Coordinator(
      LocalProcess process, Roster base, Term term, Optional<JoinRequest> request, long now) {
    this.process = process;
    this.rules = process.rules;
    this.base = base;
    this.term = term;
    this.rank = term.rank();
    this.request = request;
    this.beatNanos = now;
  }

  State state() {
    return state;
  }

  boolean hasJoins() {
    return !joins.isEmpty();
  }

  // ---- messages ----

  void join(InetSocketAddress from, Join join, long now) {
    process.heard(from, now);
    boolean isForOther = !join.isNewcomer() && join.term().rank() != rank;
    if (isForOther && !join.term().equals(Term.NONE)) {
      return; // a term belongs to one coordinator
    }
    if (state == State.FORMED) {
      announce(from, join);
      return;
    }
    Optional<Failure> refusal = join.isNewcomer() ? refusal(from, join) : Optional.empty();
    if (refusal.isPresent()) {
      note = refusal.get().message();
      process.send(from, new Rejected(refusal.get()));
      return;
    }
    if (request.isEmpty()) {
      request = Optional.of(join.request());
    }
    if (joins.isEmpty()) {
      beganNanos = now;
    }
    if (join.isNewcomer() && join.term().isAfter(term)) {
      process.send(from, waiting()); // it follows another coordinator
      return;
    }
    Join before = joins.put(from, join);
    Duration theirs = join.request().replacementTimeout();
    replacementTimeout = theirs.compareTo(replacementTimeout) > 0 ? theirs : replacementTimeout;
    diedNanos.remove(join.request().rank());
    if (!join.isNewcomer() && join.term().isAfter(term)) {
      collect(join.term(), now);
    } else {
      decide(now);
    }
    if (state == State.COLLECTING && (before == null || !before.term().equals(join.term()))) {
      process.send(from, waiting());
    }
  }

  private Optional<Failure> refusal(InetSocketAddress from, Join join) {
    JoinRequest theirs = join.request();
    Optional<Failure> mismatch = request.flatMap(own -> own.refusal(theirs));
    if (mismatch.isPresent() || theirs.kind() != Kind.FIXED) {
      return mismatch;
    }
    String why = "";
    if (theirs.rank() < 0 || theirs.rank() >= theirs.size()) {
      why = "the job has no such rank";
    }
    for (Map.Entry<InetSocketAddress, Join> other : joins.entrySet()) {
      if (other.getValue().request().rank() == theirs.rank() && !other.getKey().equals(from)) {
        why = Text.of("%s has joined with this rank", other.getValue().member().process());
      }
    }
    String text = Text.of("%s: %s; set another rank", theirs, why);
    return why.isEmpty()
        ? Optional.empty()
        : Optional.of(new Failure(ErrorCode.INVALID_USAGE, theirs.rank(), text));
  }

  void accept(InetSocketAddress from, Accept accept) {
    if (state == State.PROPOSING && accept.term().equals(term)) {
      accepts.add(from);
      if (isDecided()) {
        form();
      }
    }
  }

  /** A process follows a higher term. */
  void refused(InetSocketAddress from, long now) {
    joins.remove(from);
    if (state == State.PROPOSING && !adopted && roster.lists(from)) {
      collect(term.next(rank), now);
    }
  }

  /** A process has died or left. */
  void ended(InetSocketAddress peer, long now) {
    Join lost = joins.remove(peer);
    if (lost != null && base.isEmpty() && lost.request().kind() == Kind.FIXED) {
      diedNanos.put(lost.request().rank(), now);
    }
    if (state == State.PROPOSING && !adopted && roster.lists(peer)) {
      collect(term.next(rank), now);
    } else {
      decide(now);
    }
  }

  /** Ends the join of all processes, because the first epoch can't form. */
  void end(Failure failure) {
    if (state != State.FORMED) {
      state = State.ENDED;
      joins.keySet().forEach(each -> process.send(each, new Rejected(failure)));
    }
  }

  /** Sends the processes that have joined here to another coordinator. */
  void stepDown(Term higher, InetSocketAddress coordinator) {
    state = State.ENDED;
    joins.keySet().stream()
        .filter(each -> !process.is(each) && !each.equals(coordinator))
        .forEach(each -> process.send(each, new Redirect(higher, coordinator)));
  }

  // ---- time ----

  /** Returns when {@link #tick} is to be called at the latest. */
  long wakeNanos(long now) {
    long replaced = beganNanos + replacementTimeout.toNanos();
    boolean waits = state == State.COLLECTING && !joins.isEmpty() && replaced > now;
    return waits ? Math.min(beatNanos, replaced) : beatNanos;
  }

  void tick(long now) {
    if (state == State.FORMED || state == State.ENDED) {
      beatNanos = now + rules.intervalNanos();
      return;
    }
    long patience = roster.size() * ACCEPT_NANOS;
    if (state == State.PROPOSING && rules.isSilent(now - proposedNanos - patience)) {
      joins.keySet().removeIf(each -> !accepts.contains(each));
      collect(term.next(rank), now);
    }
    joins.keySet().removeIf(each -> process.isSilent(each, now));
    diedNanos.entrySet().stream()
        .filter(each -> now - each.getValue() > JoinRules.RETURN_NANOS)
        .findFirst()
        .ifPresent(each -> end(death(each.getKey())));
    if (now >= beatNanos && state != State.ENDED) {
      beat(now);
    }
    decide(now);
  }

  private Failure death(int dead) {
    String text = "rank %s died during the join and was not replaced; start the job again";
    return new Failure(ErrorCode.REMOTE_FAILURE, dead, Text.of(text, dead));
  }

  /**
   * Restarts the collection after this process was suspended. The members may follow another
   * coordinator by now, so accepts that have arrived are dropped.
   */
  void resume(long now) {
    diedNanos.replaceAll((rank, died) -> now);
    if (state == State.PROPOSING) {
      collect(term.next(rank), now);
    }
  }

  private void beat(long now) {
    beatNanos = now + rules.intervalNanos();
    answer = Optional.empty();
    Set<InetSocketAddress> called = new LinkedHashSet<>(joins.keySet());
    called.addAll(base.addresses());
    if (!base.isEmpty()) {
      called.addAll(process.jobAddresses);
    }
    called.removeAll(process.dead);
    called.removeAll(process.left);
    Waiting call = waiting();
    for (InetSocketAddress each : called) {
      if (!process.is(each) || joins.containsKey(each)) {
        process.asked(each, now);
        process.send(each, call);
      }
    }
  }

  /** Returns the answer to joins. Its missing ranks are those of the last heartbeat. */
  private Waiting waiting() {
    Waiting latest = answer.filter(each -> each.term().equals(term)).orElseGet(this::newAnswer);
    answer = Optional.of(latest);
    return latest;
  }

  private Waiting newAnswer() {
    List<Integer> missing = missing().stream().limit(MAX_MISSING).toList();
    return new Waiting(term, base.nonce(), false, missing, base.entries(), note);
  }

  /** Returns the ranks that have not joined. */
  List<Integer> missing() {
    Set<Integer> present = new HashSet<>();
    joins.values().forEach(each -> present.add(base.wish(each)));
    boolean shrinks = request.filter(each -> each.kind() == Kind.SHRINKING).isPresent();
    int size = shrinks ? base.size() : request.map(JoinRequest::size).orElse(0);
    Set<Integer> lost = shrinks ? lost() : Set.of();
    return IntStream.range(0, size)
        .filter(each -> !present.contains(each) && !lost.contains(each))
        .boxed()
        .toList();
  }

  /** Returns the ranks of the last epoch that need not join. */
  private Set<Integer> lost() {
    Set<Integer> lost = new HashSet<>();
    joins.values().forEach(each -> lost.addAll(each.lost()));
    IntStream.range(0, base.size())
        .filter(each -> process.isOut(base.address(each)))
        .forEach(lost::add);
    return lost;
  }

  // ---- decisions ----

  private List<Join> voters() {
    return joins.values().stream()
        .filter(each -> !each.isNewcomer() && each.term().equals(term))
        .sorted(Comparator.comparingInt(base::wish))
        .toList();
  }

  private Count count(List<Join> voters) {
    Set<InetSocketAddress> dead = new HashSet<>(process.dead);
    dead.addAll(process.renounced);
    return new Electorate(base, dead, process.left)
        .count(voters.stream().map(Join::member).toList());
  }

  /** Collects joins under a higher term. */
  private void collect(Term higher, long now) {
    if (state == State.PROPOSING && !adopted) {
      abandoned.add(term);
    }
    term = higher;
    state = State.COLLECTING;
    accepts.clear();
    beat(now);
    decide(now);
  }

  /** Proposes a roster if one can be chosen. Called whenever that may have changed. */
  private void decide(long now) {
    boolean isFirst = base.isEmpty();
    if (state != State.COLLECTING
        || joins.isEmpty()
        || (isFirst && joins.size() < request.orElseThrow().size())) {
      return;
    }
    List<Join> voters = voters();
    if (!base.isEmpty()) {
      Count count = count(voters);
      if (!rules.mayForm(count)) {
        note = noQuorum(count);
        return;
      }
      note = "";
      Ballot binding = rules.binding(voters.stream().map(Join::ballot).toList());
      // No other coordinator can have proposed its roster again, or a majority would report that.
      boolean isAbandoned = abandoned.contains(binding.accepted()) && count.isMajority();
      if (binding.hasRoster() && !isAbandoned) {
        propose(binding.roster(), true, now);
        return;
      }
      if (isExpecting(voters, now)) {
        return;
      }
    }
    List<Join> chosen = new ArrayList<>(voters);
    joins.values().stream().filter(Join::isNewcomer).forEach(chosen::add);
    if (isComplete(voters.size(), chosen.size(), now)) {
      int size = request.orElseThrow().size();
      List<Join> members =
          chosen.subList(0, Math.min(Math.max(size, voters.size()), chosen.size()));
      propose(Roster.of(term, process.nonces.get(), base, members, size), false, now);
    }
  }

  private String noQuorum(Count count) {
    return Text.of(
        "the hosts of ranks %s don't answer, and the others have %s of %s votes; continue or end"
            + " the processes there",
        count.unknown(), count.votes(), count.total());
  }

  /** Returns whether a live member of the last epoch may still join. */
  private boolean isExpecting(List<Join> voters, long now) {
    if (request.orElseThrow().kind() == Kind.HEALING
        && now - beganNanos >= Math.max(JoinRules.LATE_NANOS, replacementTimeout.toNanos())) {
      return false;
    }
    Set<Integer> absent = lost();
    voters.forEach(each -> absent.add(base.wish(each)));
    return IntStream.range(0, base.size())
        .anyMatch(each -> !absent.contains(each) && !process.isSilent(base.address(each), now));
  }

  private boolean isComplete(int survivors, int present, long now) {
    JoinRequest own = request.orElseThrow();
    if (own.kind() == Kind.SHRINKING) {
      return true;
    }
    int least = joins.values().stream().mapToInt(each -> each.request().least()).max().orElse(0);
    return present >= own.size()
        || (survivors > 0 && present >= least && now - beganNanos >= replacementTimeout.toNanos());
  }

  private void propose(Roster proposed, boolean again, long now) {
    state = State.PROPOSING;
    roster = proposed;
    adopted = again;
    accepts.clear();
    proposedNanos = now;
    // All voters vote on an earlier coordinator's roster, also those that it does not list.
    joins.forEach(
        (at, join) -> {
          if (proposed.lists(at) || (again && !join.isNewcomer())) {
            process.send(at, new Propose(term, base.nonce(), proposed));
          }
        });
  }

  /** Returns whether the proposal is final: no later coordinator can form another roster. */
  private boolean isDecided() {
    return adopted
        ? rules.mayForm(count(voters().stream().filter(this::hasAccepted).toList()))
        : accepts.containsAll(roster.ranks().keySet());
  }

  private boolean hasAccepted(Join join) {
    return accepts.contains(join.member().address());
  }

  private void form() {
    state = State.FORMED;
    joins.forEach(this::announce);
    if (adopted) {
      // Its first coordinator has failed, so some of its members probably have, too.
      IntStream.range(0, roster.size())
          .filter(each -> !accepts.contains(roster.address(each)))
          .findFirst()
          .ifPresent(this::announceFailure);
    }
  }

  private void announceFailure(int missing) {
    String text = "rank %s of generation %s was lost while it formed";
    Failure failure =
        new Failure(ErrorCode.REMOTE_FAILURE, missing, Text.of(text, missing, roster.epoch()));
    Failed news = new Failed(roster.nonce(), failure);
    roster.addresses().stream()
        .filter(joins::containsKey)
        .forEach(each -> process.send(each, news));
  }

  private void announce(InetSocketAddress to, Join join) {
    InetSocketAddress watcher = roster.address(0);
    if (roster.lists(to)) {
      process.send(to, new Formed(roster));
    } else if (join.isNewcomer()) {
      process.send(to, new Redirect(roster.term(), watcher));
    } else {
      process.send(to, process.missed(roster));
    }
  }
}
