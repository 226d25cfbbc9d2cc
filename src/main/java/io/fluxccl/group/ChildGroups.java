// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.Split;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Lifecycle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;

/** The sub-groups of one rank's group, from their forming to their end. Thread-safe. */
final class ChildGroups {
  private final RankGroup parent;

  /** The time limit for the other ranks to call a split. */
  private final Duration limit;

  // Guarded by this.
  private final Set<RankGroup> open = new LinkedHashSet<>();
  private int splits;
  private final Lifecycle lifecycle = new Lifecycle("the group");

  ChildGroups(RankGroup parent, Duration limit) {
    this.parent = parent;
    this.limit = limit;
  }

  /** {@link RankGroup#grid}. */
  CompletableFuture<Map<String, RankGroup>> grid(Grid grid) {
    List<Split> parts = grid.splits(parent.rank(), parent.nRanks());
    return split(parts)
        .thenApply(
            groups -> {
              Map<String, RankGroup> byName = new LinkedHashMap<>();
              for (int i = 0; i < parts.size(); i++) {
                byName.put(parts.get(i).name(), groups.get(i).orElseThrow());
              }
              return byName;
            });
  }

  /** {@link RankGroup#without}. */
  CompletableFuture<Optional<RankGroup>> without(int... ranks) {
    for (int each : ranks) {
      if (each < 0 || each >= parent.nRanks()) {
        return CompletableFuture.failedFuture(
            InvalidUsage.of("without rank %s of nRanks=%s", each, parent.nRanks()));
      }
    }
    boolean isOut = IntStream.of(ranks).anyMatch(each -> each == parent.rank());
    return parent.split(isOut ? -1 : 0, parent.rank());
  }

  /** {@link RankGroup#split}, several at once. */
  CompletableFuture<List<Optional<RankGroup>>> split(List<Split> parts) {
    CompletableFuture<List<Optional<Bootstrap>>> formed;
    int number;
    synchronized (this) {
      number = ++splits;
      formed = parent.bootstrap().split(parts, Deadline.after(limit));
    }
    return formed
        .thenApplyAsync(
            bootstraps -> {
              List<Optional<RankGroup>> groups = new ArrayList<>();
              for (int i = 0; i < parts.size(); i++) {
                Object key = List.of(number, i, parts.get(i).color());
                groups.add(bootstraps.get(i).map(each -> add(open(each, key))));
              }
              return groups;
            },
            BlockingTasks.EXECUTOR)
        .thenCompose(ChildGroups::createCollectives)
        // Continuations that block must not block the bootstrap's thread.
        .whenCompleteAsync((groups, failure) -> {}, BlockingTasks.EXECUTOR);
  }

  /** Opens a group, without collectives; the key is the same on all its ranks. */
  private RankGroup open(Bootstrap ranks, Object key) {
    RankGroup group =
        new RankGroup(ranks, parent::device, false, parent.generation(), parent.options);
    group.renewable = parent.renewable;
    group.closing.closed().whenComplete((done, failure) -> remove(group));
    LocalRanks local = parent.localRanks;
    if (local == null) {
      return group;
    }
    group.closing.closed().whenComplete((done, failure) -> local.forget(key));
    return group.among(local.subGroup(key, ranks.nRanks()));
  }

  private RankGroup add(RankGroup group) {
    synchronized (this) {
      if (lifecycle.isOpen()) {
        open.add(group);
        return group;
      }
    }
    group.closing.closeNow();
    throw InvalidUsage.of(
        "split on rank %s of %s: the group is closed", parent.rank(), parent.nRanks());
  }

  private synchronized void remove(RankGroup group) {
    open.remove(group);
  }

  /** One group after the other, in the same order on all ranks. */
  private static CompletableFuture<List<Optional<RankGroup>>> createCollectives(
      List<Optional<RankGroup>> groups) {
    CompletableFuture<?> done = CompletableFuture.completedFuture(null);
    for (Optional<RankGroup> each : groups) {
      if (each.isPresent()) {
        RankGroup group = each.get();
        done = done.thenCompose(before -> Joining.createCollectives(group));
      }
    }
    return done.thenApply(all -> groups);
  }

  /** Notifies ranks of the parent, in each sub-group that they share with this rank. */
  void notifyLate(List<Integer> ranks) {
    List<RankGroup> shared;
    synchronized (this) {
      shared = List.copyOf(open);
    }
    List<Integer> known = parent.bootstrap().jobRanks();
    List<Integer> ofJob = known.isEmpty() ? ranks : ranks.stream().map(known::get).toList();
    shared.forEach(group -> group.closing.notifyLateOfJob(ofJob));
  }

  /** Closes them without waiting for their other ranks. Ignores failures. */
  CompletableFuture<Void> close() {
    List<RankGroup> last;
    synchronized (this) {
      lifecycle.beginClose();
      last = List.copyOf(open);
    }
    last.forEach(group -> group.closing.parentCloses(parent));
    return close(last).exceptionally(failure -> null);
  }

  /** Closes groups at the same time. */
  static CompletableFuture<Void> close(Collection<RankGroup> groups) {
    return CompletableFuture.allOf(
        groups.stream().map(RankGroup::closeAsync).toArray(CompletableFuture<?>[]::new));
  }
}
