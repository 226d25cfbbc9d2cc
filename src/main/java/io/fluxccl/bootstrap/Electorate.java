// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.Roster.Contact;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The hosts that decide on the epoch after a roster. A host has one vote for each of its members,
 * and any live member casts all of them: see {@link Ballot}. A host whose members have all left has
 * none. A host has ended if all its members have died or left, and is unknown if one of them may
 * live.
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
