// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.StreamKey.Space;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

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
}
