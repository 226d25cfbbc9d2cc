// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Mailboxes.StreamKey.Space;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import io.netty.util.concurrent.ScheduledFuture;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/**
 * A bootstrap over some ranks of another one. It has its own state and its own rank numbers. The
 * job's bootstrap carries its messages, with the sub-group's id, which no other sub-group of these
 * ranks has. The job carries the messages of nested sub-groups, too.
 */
final class SubBootstrap extends CollectiveBootstrap {
  private static final int SHOWN_RANKS = 8;
  private static final long GRACE_MILLIS = 1000;

  /** The job, and the job's numbers of the sub-group's ranks, by rank. */
  private final AbstractBootstrap job;

  final List<Integer> ranks;

  /** The splits that formed it, starting at the job; unique among sub-groups with these ranks. */
  private final String path;

  final long id;

  private boolean gone;

  private SubBootstrap(AbstractBootstrap job, String name, String path, List<Integer> ranks) {
    super(name, ranks.indexOf(job.rank()), ranks.size(), job.messageLimit);
    this.job = job;
    this.ranks = ranks;
    this.path = path;
    this.id = HostIdentity.hash(path);
    initialized(ranks.stream().map(job::member).toList());
  }

  /**
   * Forms the sub-groups of a split, on the event loop.
   *
   * @param parent whose ranks have taken part
   * @param number of the split among those of the parent
   * @param own this rank's splits
   * @param messages what all ranks sent
   * @return by split, this rank's sub-group
   * @throws InvalidUsage if the ranks differ; the same on every rank
   */
  static List<Optional<Bootstrap>> form(
      AbstractBootstrap parent, int number, List<Split> own, List<byte[]> messages) {
    List<List<Split>> all = Split.decode(own, messages);
    List<List<Integer>> members = new ArrayList<>();
    for (int i = 0; i < own.size(); i++) {
      int index = i;
      List<Split> byRank = all.stream().map(theirs -> theirs.get(index)).toList();
      requireSizes(parent, byRank);
      members.add(membersOf(byRank, own.get(i).color()));
    }
    List<Optional<Bootstrap>> formed = new ArrayList<>();
    for (int i = 0; i < own.size(); i++) {
      formed.add(
          own.get(i).color() < 0
              ? Optional.empty()
              : Optional.of(of(parent, number, i, own.get(i).name(), members.get(i))));
    }
    return formed;
  }

  private static List<Integer> membersOf(List<Split> byRank, int color) {
    return IntStream.range(0, byRank.size())
        .filter(rank -> byRank.get(rank).color() == color)
        .boxed()
        .sorted(Comparator.comparing(rank -> byRank.get(rank).key()))
        .toList();
  }

  private static void requireSizes(AbstractBootstrap parent, List<Split> byRank) {
    for (Split split : byRank) {
      List<Integer> members = membersOf(byRank, split.color());
      if (split.size() > 0 && split.color() >= 0 && members.size() != split.size()) {
        throw InvalidUsage.of(
            "%s: split(%s): the ranks %s chose color %s; each color must have %s ranks",
            parent.describe(), split.name(), members, split.color(), split.size());
      }
    }
  }

  private static SubBootstrap of(
      AbstractBootstrap parent, int number, int index, String name, List<Integer> members) {
    String label = name.isEmpty() ? "split-" + number : name;
    String fullName = parent.name().isEmpty() ? label : parent.name() + "." + label;
    String step = "/" + number + "." + index;
    SubBootstrap group;
    if (parent instanceof SubBootstrap sub) {
      List<Integer> ofJob = members.stream().map(sub.ranks::get).toList();
      group = new SubBootstrap(sub.job, fullName, sub.path + step, ofJob);
    } else {
      group = new SubBootstrap(parent, fullName, step, members);
    }
    group.job.add(group);
    return group;
  }

  @Override
  public Bootstrap job() {
    return job;
  }

  @Override
  String describe() {
    return "rank " + rank() + " of " + nRanks() + " of sub-group " + name();
  }

  @Override
  public long groupId() {
    return id;
  }

  @Override
  public List<Integer> jobRanks() {
    return ranks;
  }

  @Override
  public Runnable report(Supplier<Snapshot> part) {
    return job.report(part);
  }

  @Override
  public CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    return job.dump(all, limit);
  }

  // ---- messages ----

  @Override
  CompletableFuture<Void> transmit(int peer, StreamKey key, byte[] message) {
    return job.post(ranks.get(peer), key.in(id, job.rank()), message);
  }

  /** Delivers a message of this sub-group that has arrived at the job's bootstrap. */
  void arrivedAtJob(StreamKey key, byte[] message) {
    int sender = ranks.indexOf(key.peer());
    if (sender < 0) {
      return;
    }
    if (key.space() == Space.LEFT) {
      hasLeft(sender);
    } else {
      arrived(key.in(StreamKey.ALL, sender), message);
    }
  }

  // A rank's messages to this sub-group travel on its connection to the job, before its leave
  // notice.
  @Override
  boolean mayStillDeliver(int peer) {
    return job.hasDeparted(ranks.get(peer)) && job.mayStillDeliver(ranks.get(peer));
  }

  @Override
  public List<Integer> silentRanks() {
    return job.silentRanks().stream().filter(ranks::contains).map(ranks::indexOf).toList();
  }

  @Override
  public Flux<OptionalInt> silence() {
    return job.silence().map(unused -> unresponsiveRank()).distinctUntilChanged();
  }

  // ---- failure and leaving ----

  @Override
  void relay(FluxCclException reason) {
    int rank = reason.rank();
    boolean isMember = rank >= 0 && rank < nRanks();
    job.fail(reason.withRank(isMember ? ranks.get(rank) : rank, withLabel(reason)));
  }

  /** Returns a failure of the job with this sub-group's number of the rank. */
  FluxCclException fromJob(FluxCclException reason) {
    // -1 for a rank that is not in this sub-group: NO_RANK.
    return reason.withRank(ranks.indexOf(reason.rank()), withLabel(reason));
  }

  private String withLabel(FluxCclException reason) {
    boolean isShort = nRanks() <= SHOWN_RANKS;
    String members = isShort ? ranks.toString() : ranks.subList(0, SHOWN_RANKS) + " and more";
    String label = "sub-group " + name() + " of the job's ranks " + members;
    String message = String.valueOf(reason.getMessage());
    return message.contains(label) ? message : label + ": " + message;
  }

  /** Records that a rank has left this sub-group, or the job. */
  void hasLeft(int peer) {
    departed(peer);
    forgetIfAllHaveLeft();
  }

  private void forgetIfAllHaveLeft() {
    if (gone
        && IntStream.range(0, nRanks()).allMatch(peer -> peer == rank() || hasDeparted(peer))) {
      job.subGroups.remove(id, this);
    }
  }

  @Override
  CompletableFuture<Void> leave() {
    gone = true;
    List<CompletableFuture<Void>> sent = new ArrayList<>();
    for (int peer = 0; peer < nRanks() && !job.hasEnded(); peer++) {
      // Also to ranks that have left the sub-group: they keep it until all ranks have left.
      if (peer != rank() && !job.hasDeparted(ranks.get(peer))) {
        StreamKey key = new StreamKey(rank(), Space.LEFT, 0, 0);
        CompletableFuture<Void> done = transmit(peer, key, BootstrapFrame.NO_BYTES);
        if (!silentRanks().contains(peer)) {
          sent.add(done);
        }
      }
    }
    forgetIfAllHaveLeft();
    // The leave notices follow all other messages, so these are sent, too.
    CompletableFuture<Void> left = NonblockingFuture.create();
    CompletableFuture.allOf(sent.toArray(CompletableFuture<?>[]::new))
        .whenComplete((all, failure) -> left.complete(null));
    ScheduledFuture<?> grace =
        loop.schedule(() -> left.complete(null), GRACE_MILLIS, TimeUnit.MILLISECONDS);
    return left.whenComplete((done, failure) -> grace.cancel(false));
  }
}
