package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.Mailboxes.FutureReceiver;
import io.fluxccl.bootstrap.Mailboxes.Receiver;
import io.fluxccl.bootstrap.StreamKey.Space;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * Adds the operations of all ranks together, over the ring of ranks. Each has a number, so that
 * messages of an operation that was given up never pass for those of the next one. State is of the
 * event loop only.
 */
abstract class RingBootstrap extends AbstractBootstrap {
  /** The last number of each kind of operation: by tag of an exchange, by group, of all others. */
  private final Map<Object, Integer> sequences = new HashMap<>();

  RingBootstrap(String name, int rank, int nRanks, int messageLimit) {
    super(name, rank, nRanks, messageLimit);
  }

  @Override
  public final CompletableFuture<List<byte[]>> allGather(byte[] mine, Deadline deadline) {
    return gather("allGather", this::nextOfAll, mine, deadline);
  }

  @Override
  public final CompletableFuture<Void> barrier(Deadline deadline) {
    return gather("barrier", this::nextOfAll, Message.NO_BYTES, deadline).thenApply(all -> null);
  }

  @Override
  public final CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    return gather("exchange(tag=" + tag + ")", () -> nextExchange(tag), mine, deadline);
  }

  @Override
  public final CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline) {
    List<Integer> group = List.copyOf(ranks);
    return gather("groupBarrier" + group, () -> nextOf(group), Message.NO_BYTES, deadline)
        .thenApply(all -> null);
  }

  /** A gather's place in the order of those that must match on the ranks that take part. */
  private record Turn(List<Integer> ranks, StreamKey key) {}

  private Turn nextOfAll() {
    return new Turn(all(), new StreamKey(0, Space.GATHER, 0, next(Space.GATHER)));
  }

  private Turn nextExchange(int tag) {
    return new Turn(all(), new StreamKey(0, Space.EXCHANGE, tag, next(tag)));
  }

  private Turn nextOf(List<Integer> group) {
    group.forEach(this::checkPeer);
    if (!group.contains(rank()) || new HashSet<>(group).size() != group.size()) {
      throw InvalidUsage.of(
          "groupBarrier(ranks=%s): name rank %s, and no rank twice", group, rank());
    }
    long channel = HostIdentity.hash(group.toString());
    return new Turn(group, new StreamKey(0, Space.GROUP, channel, next(group)));
  }

  private int next(Object kind) {
    return sequences.merge(kind, 1, Integer::sum);
  }

  private List<Integer> all() {
    return IntStream.range(0, nRanks()).boxed().toList();
  }

  private CompletableFuture<List<byte[]>> gather(
      String operation, Supplier<Turn> next, byte[] mine, Deadline deadline) {
    CompletableFuture<List<byte[]>> result = NonblockingFuture.create();
    submit(
        result,
        () -> {
          // A refused call takes a number too, or later calls would no longer match other ranks'.
          RingGather gather = new RingGather(next.get());
          try {
            checkMessage(mine);
          } catch (InvalidUsage refused) {
            gather.drop();
            throw refused;
          }
          pipe(gather.done, result);
          gather.start(operation, mine.clone(), deadline);
        });
    return result;
  }

  /**
   * Gathers one block of each of some ranks at each of them. Every rank sends its block to the next
   * in the ring and forwards what it receives, n - 1 times. So the block that is missing belongs to
   * the rank for which all ranks wait.
   */
  private final class RingGather implements Receiver {
    // Not the caller's future: a caller that cancels its own still forwards the blocks of others.
    final CompletableFuture<List<byte[]>> done = NonblockingFuture.create();

    private final List<Integer> ranks;
    private final int position;
    private final StreamKey outbound;
    private final StreamKey inbound;
    private final int next;
    private final byte[][] blocks;
    private int received;

    RingGather(Turn turn) {
      ranks = turn.ranks();
      position = ranks.indexOf(rank());
      int size = ranks.size();
      next = ranks.get((position + 1) % size);
      outbound = turn.key().from(rank());
      inbound = turn.key().from(ranks.get((position + size - 1) % size));
      blocks = new byte[size][];
    }

    void start(String operation, byte[] mine, Deadline deadline) {
      operations.track(
          done,
          deadline,
          () -> operations.late(operation, ranks.get(awaitedPosition()), deadline),
          () -> {
            if (done.isCompletedExceptionally()) {
              drop();
            }
          });
      blocks[position] = mine;
      if (blocks.length == 1) {
        finish();
      } else {
        forward(Message.of(mine));
        receive(inbound, this);
      }
    }

    private void forward(Message message) {
      post(next, outbound, message, NonblockingFuture.create());
    }

    /** Ends it here; messages that still come for it are dropped. */
    void drop() {
      abandon(inbound, this);
    }

    private int awaitedPosition() {
      return Math.floorMod(position - 1 - received, blocks.length);
    }

    @Override
    public boolean accept(Message message) {
      // A loop, not a recursion: hundreds of blocks may be here already.
      for (Message each = message; each != null; each = mailboxes.poll(inbound)) {
        if (each.broken()) {
          fail(
              RemoteFailure.of(
                  each.leftRank(),
                  "%s: rank %s left before it sent its part",
                  describe(),
                  each.leftRank()));
          return true;
        }
        blocks[awaitedPosition()] = each.bytes();
        received++;
        if (received == blocks.length - 1) {
          finish();
          return true;
        }
        forward(each);
      }
      receive(inbound, this);
      return true;
    }

    @Override
    public void fail(FluxCclException reason) {
      if (reason instanceof RemoteFailure) {
        // The ranks behind would wait for messages that this rank can no longer forward.
        forward(Message.brokenBy(reason.rank()));
      }
      done.completeExceptionally(reason);
    }

    private void finish() {
      done.complete(Collections.unmodifiableList(Arrays.asList(blocks)));
    }
  }

  // ---- broadcast ----

  @Override
  public final CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline) {
    CompletableFuture<byte[]> result = NonblockingFuture.create();
    submit(
        result,
        () -> {
          // Before anything may be refused, as in a gather.
          int number = next(Space.GATHER);
          checkPeer(root);
          StreamKey key = new StreamKey(previous(), Space.BROADCAST, root, number);
          if (root == rank()) {
            checkMessage(message);
            sendBroadcast(key, message, deadline, result);
          } else {
            receiveBroadcast(key, root, deadline, result);
          }
        });
    return result;
  }

  private void sendBroadcast(
      StreamKey key, byte[] message, Deadline deadline, CompletableFuture<byte[]> result) {
    CompletableFuture<Void> sent = NonblockingFuture.create();
    pipe(sent.thenApply(done -> message.clone()), result);
    if (next() == rank()) {
      sent.complete(null);
      return;
    }
    String operation = "broadcast(root=" + rank() + ")";
    post(next(), key.from(rank()), Message.of(message), sent);
    operations.trackSend(sent, deadline, () -> operations.late(operation, next(), deadline));
  }

  private void receiveBroadcast(
      StreamKey key, int root, Deadline deadline, CompletableFuture<byte[]> result) {
    CompletableFuture<byte[]> done = NonblockingFuture.create();
    pipe(done, result);
    Receiver receiver =
        new FutureReceiver(done, this::left) {
          @Override
          public void fail(FluxCclException reason) {
            if (reason instanceof RemoteFailure) {
              forwardBroadcast(key, Message.brokenBy(reason.rank()));
            }
            super.fail(reason);
          }
        };
    receive(key, receiver);
    operations.track(
        done,
        deadline,
        () -> operations.late("broadcast(root=" + root + ")", root, deadline),
        () -> {
          if (done.isCompletedExceptionally()) {
            abandon(key, receiver);
          }
        });
  }

  /**
   * Sends a broadcast that has arrived to the next rank, before a receiver here asks for it: so
   * only its root can be late.
   */
  @Override
  final void forwardBroadcast(StreamKey key, Message message) {
    if (key.space() == Space.BROADCAST && next() != key.channel()) {
      post(next(), key.from(rank()), message, NonblockingFuture.create());
    }
  }

  // ---- sub-groups ----

  @Override
  public final CompletableFuture<List<Optional<Bootstrap>>> split(
      List<Split> splits, Deadline deadline) {
    List<Split> asked = List.copyOf(splits);
    CompletableFuture<List<Optional<Bootstrap>>> result = NonblockingFuture.create();
    submit(
        result,
        () -> {
          int number = next(Space.SPLIT);
          StreamKey key = new StreamKey(0, Space.SPLIT, 0, number);
          RingGather gather = new RingGather(new Turn(all(), key));
          pipe(
              gather.done.thenApply(all -> SubBootstrap.form(this, number, asked, all)),
              result,
              formed -> formed.forEach(each -> each.ifPresent(Bootstrap::closeAsync)));
          gather.start(Split.describe(asked), Split.encode(asked), deadline);
        });
    return result;
  }

  private static <T> void pipe(CompletableFuture<T> from, CompletableFuture<T> to) {
    pipe(from, to, unwanted -> {});
  }

  /** Completes a future as another one; a value that comes too late goes to {@code unwanted}. */
  private static <T> void pipe(
      CompletableFuture<T> from, CompletableFuture<T> to, Consumer<T> unwanted) {
    from.whenComplete(
        (value, thrown) -> {
          if (thrown == null) {
            if (!to.complete(value)) {
              unwanted.accept(value);
            }
          } else {
            to.completeExceptionally(FluxCclException.from(thrown));
          }
        });
  }
}
