// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * The ranks of a group that are all in this JVM. A plain loop closes them one after the other, so
 * only the last one waits: for all of them. Thread-safe.
 */
final class LocalRanks {
  private final int nRanks;
  private final List<RankGroup> ranks = new CopyOnWriteArrayList<>();
  private final Map<Object, LocalRanks> subGroups = new ConcurrentHashMap<>();

  LocalRanks(int nRanks) {
    this.nRanks = nRanks;
  }

  LocalRanks with(RankGroup rank) {
    ranks.add(rank);
    return this;
  }

  /**
   * Returns the ranks of a sub-group.
   *
   * @param key the same for all ranks of the sub-group, and different for other sub-groups
   * @param size how many they are
   */
  LocalRanks subGroup(Object key, int size) {
    return subGroups.computeIfAbsent(key, unused -> new LocalRanks(size));
  }

  /** Forgets a sub-group that closes: a rank that has not opened it yet finds no others. */
  void forget(Object key) {
    subGroups.remove(key);
  }

  /**
   * Returns what a rank that is closed has to wait for.
   *
   * @return all ranks, if all are closing or closed; otherwise nothing
   */
  CompletableFuture<Void> closed() {
    boolean last =
        ranks.size() == nRanks && ranks.stream().allMatch(each -> each.closing.hasBegun());
    return last ? ChildGroups.close(ranks) : CompletableFuture.completedFuture(null);
  }
}
