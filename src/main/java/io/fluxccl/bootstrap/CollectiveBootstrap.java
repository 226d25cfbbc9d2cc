// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Mailboxes.StreamKey.Space;
import io.fluxccl.concurrent.RankLog;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Sinks;

/**
 * Adds the collective operations. The first participating rank leads each of them. Each operation
 * has a number, so that messages of an abandoned operation are never mistaken for those of the next
 * one. State is accessed only on the event loop.
 */
abstract class CollectiveBootstrap extends AbstractBootstrap {
  /**
   * The latest operation number: by tag for exchanges, by list of ranks for group barriers, by
   * {@link Space} for others.
   */
  private final Map<Object, Integer> sequences = new HashMap<>();

  private final List<Integer> all;

  /** Tracks the silent ranks; sub-groups use the job's instead. */
  final Liveness liveness = new Liveness(this);

  CollectiveBootstrap(String name, int rank, int nRanks, int messageLimit) {
    super(name, rank, nRanks, messageLimit);
    all = IntStream.range(0, nRanks).boxed().toList();
  }

  @Override
  Map<Integer, Long> silentNanos() {
    return liveness.silentNanos();
  }

  @Override
  public List<Integer> silentRanks() {
    return liveness.silentRanks();
  }

  @Override
  public Flux<OptionalInt> silence() {
    return liveness.changes();
  }

  @Override
  public final CompletableFuture<List<byte[]>> allGather(byte[] mine, Deadline deadline) {
    return gather("allGather", this::nextOfAll, mine, deadline);
  }

  @Override
  public final CompletableFuture<Void> barrier(Deadline deadline) {
    return barrier(deadline, Gather.UNREPORTED);
  }

  @Override
  public final CompletableFuture<Void> barrier(Deadline deadline, Consumer<List<Integer>> missing) {
    return gather("barrier", this::nextOfAll, BootstrapFrame.NO_BYTES, deadline, missing)
        .thenApply(all -> null);
  }

  @Override
  public final CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    return gather("exchange(tag=" + tag + ")", () -> nextExchange(tag), mine, deadline);
  }

  @Override
  public final CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline) {
    List<Integer> group = List.copyOf(ranks);
    return gather("groupBarrier" + group, () -> nextOf(group), BootstrapFrame.NO_BYTES, deadline)
        .thenApply(all -> null);
  }

  private Gather.Turn nextOfAll() {
    return new Gather.Turn(all, new StreamKey(0, Space.GATHER, 0, next(Space.GATHER)));
  }

  private Gather.Turn nextExchange(int tag) {
    return new Gather.Turn(all, new StreamKey(0, Space.EXCHANGE, tag, next(tag)));
  }

  private Gather.Turn nextOf(List<Integer> group) {
    group.forEach(this::checkPeer);
    if (!group.contains(rank()) || new HashSet<>(group).size() != group.size()) {
      throw InvalidUsage.of(
          "groupBarrier(ranks=%s): name rank %s, and no rank twice", group, rank());
    }
    long channel = HostIdentity.hash(group.toString());
    return new Gather.Turn(group, new StreamKey(0, Space.GROUP, channel, next(group)));
  }

  private int next(Object kind) {
    return sequences.merge(kind, 1, Integer::sum);
  }

  private CompletableFuture<List<byte[]>> gather(
      String operation, Supplier<Gather.Turn> next, byte[] mine, Deadline deadline) {
    return gather(operation, next, mine, deadline, Gather.UNREPORTED);
  }

  private CompletableFuture<List<byte[]>> gather(
      String operation,
      Supplier<Gather.Turn> next,
      byte[] mine,
      Deadline deadline,
      Consumer<List<Integer>> missing) {
    CompletableFuture<List<byte[]>> result = NonblockingFuture.create();
    operations.submit(
        result,
        () -> {
          // A refused call takes a number too, or later calls would no longer match other ranks'.
          Gather gather = Gather.of(this, next.get());
          try {
            checkMessage(mine);
          } catch (InvalidUsage refused) {
            gather.drop();
            throw refused;
          }
          pipe(gather.done, result);
          gather.whenMissing(missing);
          gather.start(operation, mine.clone(), deadline);
        });
    return result;
  }

  // ---- broadcast ----

  @Override
  public final CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline) {
    CompletableFuture<byte[]> result = NonblockingFuture.create();
    operations.submit(
        result,
        () -> {
          // Before anything may be refused, as in a gather.
          int number = next(Space.GATHER);
          checkPeer(root);
          StreamKey key = new StreamKey(root, Space.BROADCAST, 0, number);
          if (root == rank()) {
            checkMessage(message);
            sendToOthers(key, message.clone(), deadline, result);
          } else {
            receiveFromRoot(key, deadline, result);
          }
        });
    return result;
  }

  private void sendToOthers(
      StreamKey key, byte[] message, Deadline deadline, CompletableFuture<byte[]> result) {
    Map<Integer, CompletableFuture<Void>> sent = new TreeMap<>();
    all.stream()
        .filter(peer -> peer != rank())
        .forEach(peer -> sent.put(peer, post(peer, key, message)));
    CompletableFuture<Void> done =
        CompletableFuture.allOf(sent.values().toArray(CompletableFuture<?>[]::new));
    pipe(done.thenApply(all -> message.clone()), result);
    operations.trackSend(
        done,
        deadline,
        "broadcast(root=" + rank() + ")",
        () -> all.stream().filter(peer -> peer != rank() && !sent.get(peer).isDone()).toList());
  }

  private void receiveFromRoot(StreamKey key, Deadline deadline, CompletableFuture<byte[]> result) {
    CompletableFuture<byte[]> done = NonblockingFuture.create();
    pipe(done, result);
    receive(key, done);
    operations.track(
        done,
        deadline,
        "broadcast(root=" + key.peer() + ")",
        () -> List.of(key.peer()),
        () -> {
          if (done.isCompletedExceptionally()) {
            mailboxes.abandon(key);
          }
        });
  }

  // ---- sub-groups ----

  @Override
  public final CompletableFuture<List<Optional<Bootstrap>>> split(
      List<Split> splits, Deadline deadline) {
    List<Split> asked = List.copyOf(splits);
    CompletableFuture<List<Optional<Bootstrap>>> result = NonblockingFuture.create();
    operations.submit(
        result,
        () -> {
          int number = next(Space.SPLIT);
          StreamKey key = new StreamKey(0, Space.SPLIT, 0, number);
          Gather gather = Gather.of(this, new Gather.Turn(all, key));
          pipe(
              gather.done.thenApply(all -> SubBootstrap.form(this, number, asked, all)),
              result,
              formed -> formed.forEach(each -> each.ifPresent(Bootstrap::closeAsync)));
          gather.start(Split.describe(asked), Split.encode(asked), deadline);
        });
    return result;
  }

  /**
   * Tracks the silent ranks of the job, as this rank knows them: logs and publishes changes. Only
   * on the event loop, except for {@link #silentRanks} and {@link #changes}.
   */
  static final class Liveness {
    private static final Logger LOG = LoggerFactory.getLogger(Liveness.class);

    private final AbstractBootstrap bootstrap;
    private final Sinks.Many<OptionalInt> changes =
        Sinks.many().replay().latestOrDefault(OptionalInt.empty());

    /** For each silent rank, the latest time at which its silence can have begun. */
    private final Map<Integer, Long> sinceNanos = new HashMap<>();

    private volatile List<Integer> silent = List.of();

    /** Creates the state of a job in which no rank is silent. */
    Liveness(AbstractBootstrap bootstrap) {
      this.bootstrap = bootstrap;
    }

    /** {@link Bootstrap#silentRanks}. Any thread. */
    List<Integer> silentRanks() {
      return silent;
    }

    /** Returns the silent ranks and for how long each is silent at least, in ns. */
    Map<Integer, Long> silentNanos() {
      long now = System.nanoTime();
      Map<Integer, Long> nanos = new HashMap<>();
      silent.forEach(rank -> nanos.put(rank, now - sinceNanos.get(rank)));
      return nanos;
    }

    /** {@link Bootstrap#silence}. Any thread. */
    Flux<OptionalInt> changes() {
      return changes.asFlux().distinctUntilChanged();
    }

    /**
     * Records which ranks are silent.
     *
     * @param noLaterNanos the latest time at which a silence that is new can have begun
     */
    void set(List<Integer> ranks, long noLaterNanos) {
      List<Integer> before = silent;
      if (ranks.equals(before)) {
        return;
      }
      silent = List.copyOf(ranks);
      Set<Integer> now = Set.copyOf(ranks); // there may be a thousand
      sinceNanos.keySet().retainAll(now);
      for (int rank : ranks) {
        if (sinceNanos.putIfAbsent(rank, noLaterNanos) == null) {
          String who = bootstrap.describe();
          RankLog.line(
              bootstrap.rank(), () -> LOG.warn("{}: rank {} answers no heartbeat", who, rank));
        }
      }
      for (int rank : before) {
        if (!now.contains(rank)) {
          // It answers again, or has ended.
          String who = bootstrap.describe();
          RankLog.line(
              bootstrap.rank(), () -> LOG.info("{}: rank {} is no longer silent", who, rank));
        }
      }
      changes.tryEmitNext(bootstrap.unresponsiveRank());
    }
  }
}
