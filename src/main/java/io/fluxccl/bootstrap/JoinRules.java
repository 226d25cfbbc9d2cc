// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.Electorate.Count;
import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.function.IntPredicate;
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
}
