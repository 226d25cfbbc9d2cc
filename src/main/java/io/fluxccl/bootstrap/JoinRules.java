// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.JoinRules.Electorate.Count;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.IntPredicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The five rules of the join protocol, and its times. {@link Member} and {@link Coordinator} decide
 * by these rules only. A test overrides one rule at a time, to show that its model needs each.
 */
class JoinRules {
  private static final long MIN_LEASE_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final int LEASE_INTERVALS = 5;

  /** The time that a coordinator waits for live members of the failed epoch that do not join. */
  static final long LATE_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** The time in which a rank that died in a first join must be replaced. */
  static final long RETURN_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final long intervalNanos;
  private final long livenessNanos;

  /**
   * @param interval between heartbeats
   * @param liveness the silence of a rank that ends its group; zero for no limit
   */
  JoinRules(Duration interval, Duration liveness) {
    this.intervalNanos = interval.toNanos();
    this.livenessNanos = liveness.toNanos();
  }

  final long intervalNanos() {
    return intervalNanos;
  }

  final long livenessNanos() {
    return livenessNanos;
  }

  final long leaseNanos() {
    return Math.max(MIN_LEASE_NANOS, LEASE_INTERVALS * intervalNanos);
  }

  /**
   * Rule 1. Returns the rank of the last epoch that coordinates the next one: the lowest available
   * one. Every member computes it; no process is appointed.
   */
  int coordinator(Roster base, IntPredicate isAvailable) {
    return IntStream.range(0, base.size()).filter(isAvailable).findFirst().orElseThrow();
  }

  /** Rule 2. Returns whether a process that has sent nothing for a time is silent. */
  boolean isSilent(long nanos) {
    return nanos > leaseNanos();
  }

  /**
   * Rule 3. Returns a host's ballot after a request. The request is refused if a higher term was
   * promised; then the ballot does not change.
   */
  Ballot vote(Ballot current, Ballot request) {
    if (current.promised().isAfter(request.promised())) {
      return current;
    }
    return request.hasRoster()
        ? request
        : new Ballot(request.promised(), current.accepted(), current.roster());
  }

  /**
   * Rule 3. Returns the ballot whose roster a coordinator must propose again, because an earlier
   * coordinator may have formed it; or {@link Ballot#EMPTY} if it may propose any roster.
   */
  Ballot binding(Collection<Ballot> reports) {
    return reports.stream()
        .filter(Ballot::hasRoster)
        .max(Comparator.comparing(Ballot::accepted))
        .orElse(Ballot.EMPTY);
  }

  /** Rule 4. Returns whether the processes that were counted may form the next epoch. */
  boolean mayForm(Count count) {
    return count.isQuorum();
  }

  /**
   * Rule 5. Returns whether a newcomer, which has no vote, leaves the coordinator that it follows
   * for another one. It asks all addresses that it knows, and follows the highest term.
   */
  boolean prefers(Term offered, Term followed) {
    return offered.isAfter(followed);
  }

  /**
   * The hosts that decide on the epoch after a roster. A host has one vote for each of its members,
   * and any live member casts all of them: see {@link Ballot}. A host whose members have all left
   * has none. A host has ended if all its members have died or left, and is unknown if one of them
   * may live.
   *
   * @param base the roster of the last epoch
   * @param dead the processes whose port refuses connections, or that have given up their place
   * @param left the processes that have left in good order
   */
  record Electorate(Roster base, Set<InetSocketAddress> dead, Set<InetSocketAddress> left) {
    /** The votes of one side. */
    record Count(int votes, int total, boolean hasLowestRank, List<Integer> unknown) {
      /**
       * Returns whether no other side can form a group as well. Dead voters count as long as a host
       * is unknown: they may have voted together with it.
       */
      boolean isQuorum() {
        return unknown.isEmpty() || isMajority();
      }

      /** Returns whether any two sides for which this holds have a host in common. */
      boolean isMajority() {
        return 2 * votes > total || (2 * votes == total && hasLowestRank);
      }
    }

    /** Counts the votes of the hosts of the given processes. */
    Count count(Collection<Contact> present) {
      Set<Long> hosts = present.stream().map(Contact::host).collect(Collectors.toSet());
      Map<Long, List<Contact>> voters =
          base.members().stream().collect(Collectors.groupingBy(Contact::host));
      voters.values().removeIf(all -> all.stream().allMatch(each -> left.contains(each.address())));
      Set<Integer> unknown = new TreeSet<>();
      int votes = 0;
      int total = 0;
      for (Map.Entry<Long, List<Contact>> host : voters.entrySet()) {
        total += host.getValue().size();
        if (hosts.contains(host.getKey())) {
          votes += host.getValue().size();
        } else if (!host.getValue().stream().allMatch(this::hasEnded)) {
          host.getValue().forEach(each -> unknown.add(base.rankOf(each.address())));
        }
      }
      boolean hasLowestRank =
          IntStream.range(0, base.size())
              .mapToObj(rank -> base.members().get(rank).host())
              .filter(voters::containsKey)
              .findFirst()
              .filter(hosts::contains)
              .isPresent();
      return new Count(votes, total, hasLowestRank, List.copyOf(unknown));
    }

    boolean hasEnded(Contact member) {
      return dead.contains(member.address()) || left.contains(member.address());
    }
  }

  /**
   * The vote of one host on the epoch after a roster. All members of that roster on the host share
   * it, so that any live process votes for the suspended and dead ones beside it, and no member
   * votes twice. {@link JoinRules#vote} is its only change. The caller keeps it where the processes
   * of the host can update it atomically.
   *
   * @param promised the highest term that a process of the host has joined or accepted
   * @param accepted the term of the latest accepted proposal
   * @param roster the roster of that proposal
   */
  record Ballot(Term promised, Term accepted, @Limits Roster roster) {
    static final Ballot EMPTY = new Ballot(Term.NONE, Term.NONE, Roster.NONE);

    /** Returns a request to promise that no lower term will be accepted. */
    static Ballot promise(Term term) {
      return new Ballot(term, Term.NONE, Roster.NONE);
    }

    /** Returns a request to accept a proposal. */
    static Ballot accept(Term term, Roster roster) {
      return new Ballot(term, term, roster);
    }

    boolean hasRoster() {
      return !roster.isEmpty();
    }
  }
}
