// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The members of one epoch, by rank. A coordinator proposes a roster once, and a later coordinator
 * may propose the same roster again. So the identity of a group is its roster, not the term of its
 * last proposal, and its keys are derived from term and nonce of the roster.
 *
 * @param term the term of the first proposal
 * @param nonce random; different for all rosters of a job
 * @param previousRanks for each rank, its rank in the epoch before, or {@link #NEWCOMER}
 * @param ranks the rank of each member
 */
record Roster(
    Term term,
    Nonce nonce,
    List<Contact> members,
    List<Integer> previousRanks,
    Map<InetSocketAddress, Integer> ranks) {
  /** The previous rank of a process that was not in the epoch before. */
  static final int NEWCOMER = -1;

  static final int MAX_ENTRIES = 8;

  /** The longest description of a process: its id and a host name of Linux. */
  private static final int MAX_PROCESS_BYTES = 128;

  /** The roster of a process that is in no epoch. */
  static final Roster NONE = new Roster(Term.NONE, new Nonce(0, 0), List.of(), List.of());

  Roster(Term term, Nonce nonce, List<Contact> members, List<Integer> previousRanks) {
    this(term, nonce, members, previousRanks, new HashMap<>());
    for (int rank = 0; rank < members.size(); rank++) {
      ranks.putIfAbsent(members.get(rank).address(), rank);
    }
  }

  /** The identity of a roster. */
  record Nonce(long high, long low) {}

  /**
   * Returns a roster. In a full one survivors keep their ranks, and newcomers get the free ones, if
   * possible as requested. In a smaller one survivors keep their order.
   *
   * @param base the roster before
   * @param chosen the members: survivors by rank, then newcomers
   * @param size the size of a full roster
   */
  static Roster of(Term term, Nonce nonce, Roster base, List<Join> chosen, int size) {
    Contact[] ranked = new Contact[chosen.size()];
    Deque<Contact> unplaced = new ArrayDeque<>();
    for (Join each : chosen) {
      int wish = base.wish(each);
      if (chosen.size() == size && wish >= 0 && wish < size && ranked[wish] == null) {
        ranked[wish] = each.member();
      } else {
        unplaced.add(each.member());
      }
    }
    Arrays.setAll(ranked, rank -> ranked[rank] == null ? unplaced.poll() : ranked[rank]);
    List<Contact> members = List.of(ranked);
    return new Roster(
        term, nonce, members, members.stream().map(each -> base.rankOf(each.address())).toList());
  }

  /** Returns the rank that a process has in this roster, or requests after it. */
  int wish(Join join) {
    return join.isNewcomer() ? join.request().rank() : rankOf(join.member().address());
  }

  /**
   * One process of the job.
   *
   * @param address the process's own listening address; no other process ever has it
   * @param id random; different for all processes, also if they listen at the same address in turn
   * @param host equal for the processes that share a {@link Ballot}; random if they can't
   * @param hostHash equal for the processes of one host, which can share memory
   * @param processHash equal for the ranks of one process
   * @param process a description for messages, for example {@code pid 4711 on host-b}
   */
  record Contact(
      InetSocketAddress address,
      long id,
      long host,
      long hostHash,
      long processHash,
      @Limits(most = MAX_PROCESS_BYTES) String process) {}

  long epoch() {
    return term.epoch();
  }

  int size() {
    return members.size();
  }

  boolean isEmpty() {
    return members.isEmpty();
  }

  List<InetSocketAddress> addresses() {
    return members.stream().map(Contact::address).toList();
  }

  /** Returns the addresses of a few members, at which a newcomer finds the job. */
  List<InetSocketAddress> entries() {
    return members.stream().map(Contact::address).limit(MAX_ENTRIES).toList();
  }

  InetSocketAddress address(int rank) {
    return members.get(rank).address();
  }

  /** Returns the rank of a process, or {@link #NEWCOMER} if it is no member. */
  int rankOf(InetSocketAddress address) {
    return ranks.getOrDefault(address, NEWCOMER);
  }

  boolean lists(InetSocketAddress address) {
    return ranks.containsKey(address);
  }

  /**
   * A ballot of the join protocol: one attempt of one coordinator to form an epoch. Terms are
   * ordered by their fields, and no two coordinators use the same term. See {@link Coordinator}.
   *
   * @param epoch the epoch to form, from 1
   * @param attempt the number of the attempt, from 1
   * @param rank the coordinator's rank in the epoch before
   */
  record Term(
      @Limits long epoch,
      @Limits int attempt,
      @Limits(least = FluxCclException.NO_RANK, most = BootstrapFrameCodec.LAST_RANK) int rank)
      implements Comparable<Term> {
    static final Term NONE = new Term(0, 0, -1);

    private static final Comparator<Term> ORDER =
        Comparator.comparingLong(Term::epoch)
            .thenComparingInt(Term::attempt)
            .thenComparingInt(Term::rank);

    @Override
    public int compareTo(Term other) {
      return ORDER.compare(this, other);
    }

    boolean isAfter(Term other) {
      return compareTo(other) > 0;
    }

    /** Returns the next attempt at the same epoch, by a coordinator of the given rank. */
    Term next(int coordinator) {
      return new Term(epoch, attempt + 1, coordinator);
    }

    @Override
    public String toString() {
      return epoch + "." + attempt + "." + rank;
    }
  }
}
