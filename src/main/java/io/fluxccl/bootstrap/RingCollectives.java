package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The operations of all ranks together, all over the ring. Each has a number, so that messages of
 * one that was given up never pass for those of the next. State is of the event loop only.
 */
final class RingCollectives {
  private final AbstractBootstrap bootstrap;
  private final Map<List<Integer>, Integer> groupSequences = new HashMap<>();
  private final Map<Integer, Integer> exchangeSequences = new HashMap<>();
  private int sequence;

  RingCollectives(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
  }

  CompletableFuture<List<byte[]>> allGather(byte[] mine, Deadline deadline) {
    return gatherOfAll("allGather", this::nextOfAll, mine, deadline);
  }

  CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    return gatherOfAll("exchange(tag=" + tag + ")", () -> nextExchange(tag), mine, deadline);
  }

  private CompletableFuture<List<byte[]>> gatherOfAll(
      String operation, Supplier<StreamKey> nextKey, byte[] mine, Deadline deadline) {
    CompletableFuture<List<byte[]>> result = new CompletableFuture<>();
    bootstrap.submit(
        result,
        () -> {
          // A refused call takes a number too, or later calls would no longer match other ranks'.
          StreamKey key = nextKey.get();
          try {
            bootstrap.checkMessage(mine);
          } catch (InvalidUsage refused) {
            // Drops the messages that other ranks send for this call.
            new RingGather(bootstrap, all(), key).abandon();
            throw refused;
          }
          gather(operation, all(), key, mine.clone(), deadline, result);
        });
    return result;
  }

  CompletableFuture<Void> barrier(Deadline deadline) {
    CompletableFuture<List<byte[]>> result = new CompletableFuture<>();
    bootstrap.submit(
        result, () -> gather("barrier", all(), nextOfAll(), Message.NO_BYTES, deadline, result));
    return result.thenApply(all -> null);
  }

  private List<Integer> all() {
    return IntStream.range(0, bootstrap.nRanks()).boxed().collect(Collectors.toList());
  }

  private StreamKey nextOfAll() {
    return new StreamKey(0, StreamKey.Space.GATHER, 0, sequence++);
  }

  private StreamKey nextExchange(int tag) {
    int number = exchangeSequences.merge(tag, 1, Integer::sum);
    return new StreamKey(0, StreamKey.Space.EXCHANGE, tag, number);
  }

  CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline) {
    List<Integer> group = List.copyOf(ranks);
    CompletableFuture<List<byte[]>> result = new CompletableFuture<>();
    bootstrap.submit(
        result,
        () -> {
          group.forEach(bootstrap::checkPeer);
          if (!group.contains(bootstrap.rank()) || new HashSet<>(group).size() != group.size()) {
            throw new InvalidUsage(
                "groupBarrier(ranks="
                    + group
                    + ") needs rank "
                    + bootstrap.rank()
                    + " and none twice");
          }
          int number = groupSequences.merge(group, 1, Integer::sum);
          StreamKey key =
              new StreamKey(0, StreamKey.Space.GROUP, HostIdentity.hash(group.toString()), number);
          gather("groupBarrier" + group, group, key, Message.NO_BYTES, deadline, result);
        });
    return result.thenApply(all -> null);
  }

  private void gather(
      String operation,
      List<Integer> ranks,
      StreamKey key,
      byte[] mine,
      Deadline deadline,
      CompletableFuture<List<byte[]>> result) {
    RingGather gather = new RingGather(bootstrap, ranks, key);
    // Not the caller's future: one who cancels still has to pass the others' blocks on.
    CompletableFuture<List<byte[]>> done = gather.done();
    pipe(done, result);
    bootstrap
        .operations()
        .track(
            done,
            deadline,
            () -> bootstrap.late(operation, gather.awaited(), deadline),
            () -> {
              if (done.isCompletedExceptionally()) {
                gather.abandon();
              }
            });
    gather.start(mine);
  }

  // ---- broadcast ----

  CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline) {
    CompletableFuture<byte[]> result = new CompletableFuture<>();
    bootstrap.submit(
        result,
        () -> {
          // Before anything may be refused, as in allGather.
          int number = sequence++;
          bootstrap.checkPeer(root);
          int previous = Math.floorMod(bootstrap.rank() - 1, bootstrap.nRanks());
          StreamKey key = new StreamKey(previous, StreamKey.Space.BROADCAST, root, number);
          if (root == bootstrap.rank()) {
            bootstrap.checkMessage(message);
            give(key, message, deadline, result);
          } else {
            take(key, root, deadline, result);
          }
        });
    return result;
  }

  private int next() {
    return (bootstrap.rank() + 1) % bootstrap.nRanks();
  }

  private void give(
      StreamKey key, byte[] message, Deadline deadline, CompletableFuture<byte[]> result) {
    CompletableFuture<Void> sent = new CompletableFuture<>();
    pipe(sent.thenApply(done -> message.clone()), result);
    if (next() == bootstrap.rank()) {
      sent.complete(null);
      return;
    }
    String operation = "broadcast(root=" + bootstrap.rank() + ")";
    bootstrap.post(next(), key.from(bootstrap.rank()), Message.of(message), sent);
    bootstrap
        .operations()
        .trackSend(sent, deadline, () -> bootstrap.late(operation, next(), deadline));
  }

  private void take(StreamKey key, int root, Deadline deadline, CompletableFuture<byte[]> result) {
    CompletableFuture<byte[]> done = new CompletableFuture<>();
    pipe(done, result);
    Receiver receiver =
        new FutureReceiver(bootstrap, done) {
          @Override
          public void fail(FluxCclException reason) {
            if (reason instanceof RemoteFailure) {
              passOn(key, Message.brokenBy(reason.rank()));
            }
            super.fail(reason);
          }
        };
    bootstrap.receive(key, receiver);
    bootstrap
        .operations()
        .track(
            done,
            deadline,
            () -> bootstrap.late("broadcast(root=" + root + ")", root, deadline),
            () -> {
              if (done.isCompletedExceptionally()) {
                bootstrap.abandon(key, receiver);
              }
            });
  }

  /**
   * Gives a broadcast that has arrived to the next rank, before anybody here asks for it: so only
   * its root can be late.
   */
  void passOn(StreamKey key, Message message) {
    if (key.space() == StreamKey.Space.BROADCAST && next() != key.channel()) {
      bootstrap.post(next(), key.from(bootstrap.rank()), message, new CompletableFuture<>());
    }
  }

  private static <T> void pipe(CompletableFuture<T> from, CompletableFuture<T> to) {
    from.whenComplete(
        (value, thrown) -> {
          if (thrown == null) {
            to.complete(value);
          } else {
            to.completeExceptionally(FluxCclException.from(thrown));
          }
        });
  }
}
