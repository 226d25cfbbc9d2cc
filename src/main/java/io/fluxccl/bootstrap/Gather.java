// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.Gather.Answer.Blocks;
import io.fluxccl.bootstrap.Gather.Answer.Ended;
import io.fluxccl.bootstrap.Gather.Answer.Missing;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/**
 * Gathers one block of each of some ranks at each of them. The first rank leads: the others send it
 * their blocks, and it answers each of them with all blocks. So the leader knows which ranks are
 * missing, and the others learn it from the leader before their deadlines pass. Only on the event
 * loop.
 */
abstract class Gather {
  private static final long REPORT_MILLIS = 50;

  /** The listener of a gather whose caller does not ask for the ranks that are late. */
  static final Consumer<List<Integer>> UNREPORTED = missing -> {};

  // Not the caller's future: a leader whose caller cancels still serves the others.
  final CompletableFuture<List<byte[]>> done = NonblockingFuture.create();

  final CollectiveBootstrap bootstrap;
  final List<Integer> ranks;
  final StreamKey key;
  final byte[][] blocks;
  private Consumer<List<Integer>> onMissing = UNREPORTED;

  /** The leader's answer to the other ranks. */
  sealed interface Answer {
    /** A range of the blocks, in rank order. The next answer holds the blocks after this range. */
    record Blocks(@Limits(least = 1) List<byte[]> blocks) implements Answer {}

    /** The ranks that have not sent their blocks. */
    record Missing(@Limits(least = 1) List<Integer> ranks) implements Answer {}

    /** The leader's gather has failed: a rank has left, or the deadline has passed. */
    record Ended(Failure failure) implements Answer {}

    /** A type's number is its index in this list. */
    List<Class<? extends Answer>> TYPES = List.of(Blocks.class, Missing.class, Ended.class);

    /** Returns the message, which all ranks may share. */
    default byte[] toBytes() {
      WireWriter out = new WireWriter().uint8(TYPES.indexOf(getClass()));
      return BootstrapFrameCodec.write(out, this).toBytes();
    }

    /**
     * Reads a message of the leader.
     *
     * @param mostBlocks the number of blocks that have not arrived yet
     * @throws TransportFailure if it is malformed; it names the leader
     */
    static Answer of(byte[] message, int leader, int mostBlocks) {
      WireReader in = WireReader.ofPeer(message, "answer of a gather", leader);
      int type = BootstrapFrameCodec.readIndex(in, "type", TYPES.size());
      Answer answer = BootstrapFrameCodec.read(TYPES.get(type), in);
      in.end();
      int count = answer instanceof Blocks some ? some.blocks().size() : 0;
      in.check(count <= mostBlocks, "blocks", count + ", expected at most " + mostBlocks);
      return answer;
    }
  }

  /** The participating ranks of a gather, and the key that matches its messages among them. */
  record Turn(List<Integer> ranks, StreamKey key) {}

  private Gather(CollectiveBootstrap bootstrap, Turn turn) {
    this.bootstrap = bootstrap;
    this.ranks = turn.ranks();
    this.key = turn.key().from(bootstrap.rank());
    this.blocks = new byte[ranks.size()][];
  }

  /** Creates the part of this rank, which must be a participant. */
  static Gather of(CollectiveBootstrap bootstrap, Turn turn) {
    return turn.ranks().get(0) == bootstrap.rank()
        ? new Leader(bootstrap, turn)
        : new Follower(bootstrap, turn);
  }

  /** Calls a listener with the ranks that are late, whenever this rank learns of them. */
  final void whenMissing(Consumer<List<Integer>> listener) {
    onMissing = listener;
  }

  final void start(String operation, byte[] mine, Deadline deadline) {
    bootstrap.operations.track(
        done,
        deadline,
        operation,
        this::missing,
        () -> {
          if (done.isCompletedExceptionally()) {
            failed();
          }
        });
    begin(mine);
  }

  abstract void begin(byte[] mine);

  /** Returns the ranks for which this one waits, as far as it knows; not empty. */
  abstract List<Integer> missing();

  final boolean isReported() {
    return onMissing != UNREPORTED;
  }

  final void reportMissing() {
    if (!done.isDone()) {
      onMissing.accept(missing());
    }
  }

  /** Abandons the gather on this rank; messages that still arrive for it are dropped. */
  abstract void drop();

  /** Called when {@link #done} has failed. */
  void failed() {
    drop();
  }

  final void send(int peer, byte[] message) {
    bootstrap.post(peer, key, message);
  }

  final StreamKey from(int position) {
    return key.from(ranks.get(position));
  }

  /** Calls a handler with the next message of a participant; the gather fails without one. */
  final void receive(int position, Consumer<byte[]> handler) {
    CompletableFuture<byte[]> message = new CompletableFuture<>();
    message
        .thenAccept(handler)
        .exceptionally(
            failure -> {
              done.completeExceptionally(FluxCclException.from(failure));
              return null;
            });
    bootstrap.receive(from(position), message);
  }

  final void complete() {
    done.complete(Collections.unmodifiableList(Arrays.asList(blocks)));
  }

  /** Collects the blocks. */
  private static final class Leader extends Gather {
    private static final int REPORTED_RANKS_PER_MILLI = 4;
    private static final int BATCH_BYTES = 1 << 16;

    private int arrived;
    private ScheduledFuture<?> report;

    Leader(CollectiveBootstrap bootstrap, Turn turn) {
      super(bootstrap, turn);
    }

    @Override
    void begin(byte[] mine) {
      arrived(0, mine);
      for (int i = 1; i < blocks.length && !done.isDone(); i++) {
        int position = i;
        receive(position, block -> arrived(position, block));
      }
    }

    private void arrived(int position, byte[] block) {
      blocks[position] = block;
      arrived++;
      if (arrived == blocks.length) {
        answerInBatches();
        stopReports();
        complete();
      } else if (report == null) {
        long millis = Math.max(REPORT_MILLIS, blocks.length / REPORTED_RANKS_PER_MILLI);
        report = bootstrap.loop.schedule(this::report, millis, TimeUnit.MILLISECONDS);
      }
    }

    /** Sends all blocks, cut so that no message is much longer than the longest block. */
    private void answerInBatches() {
      List<byte[]> all = Arrays.asList(blocks);
      int begin = 0;
      long bytes = 0;
      for (int i = 0; i < blocks.length; i++) {
        if (i > begin && bytes + blocks[i].length > BATCH_BYTES) {
          answerAll(new Blocks(all.subList(begin, i)));
          begin = i;
          bytes = 0;
        }
        bytes += blocks[i].length;
      }
      answerAll(new Blocks(all.subList(begin, blocks.length)));
    }

    /** Sends the list of missing ranks to each rank whose block has arrived. */
    private void report() {
      report = null;
      byte[] news = new Missing(missing()).toBytes();
      for (int i = 1; i < blocks.length && !done.isDone(); i++) {
        if (blocks[i] != null) {
          send(ranks.get(i), news);
        }
      }
      reportMissing();
    }

    private void stopReports() {
      if (report != null) {
        report.cancel(false);
      }
    }

    private void answerAll(Answer answer) {
      byte[] bytes = answer.toBytes();
      ranks.subList(1, ranks.size()).forEach(peer -> send(peer, bytes));
    }

    @Override
    List<Integer> missing() {
      return IntStream.range(0, blocks.length)
          .filter(each -> blocks[each] == null)
          .mapToObj(ranks::get)
          .toList();
    }

    // From now on the other ranks' gathers can't succeed, whatever their deadlines are.
    @Override
    void failed() {
      drop();
      FluxCclException reason = FluxCclException.from(done.handle((all, why) -> why).join());
      // The failure of the job gives them its own reason.
      if (!bootstrap.hasEnded() && (reason instanceof RemoteFailure || reason instanceof Timeout)) {
        answerAll(new Ended(Failure.of(reason)));
      }
    }

    @Override
    void drop() {
      stopReports();
      for (int i = 1; i < blocks.length; i++) {
        if (blocks[i] == null) {
          bootstrap.mailboxes.abandon(from(i));
        }
      }
    }
  }

  /** Sends its block to the leader and waits for all blocks. */
  private static final class Follower extends Gather {
    private List<Integer> missing = ranks.subList(0, 1);
    private int received;

    Follower(CollectiveBootstrap bootstrap, Turn turn) {
      super(bootstrap, turn);
    }

    @Override
    void begin(byte[] mine) {
      send(ranks.get(0), mine);
      receive(0, this::arrived);
      if (isReported()) {
        // The leader may be missing itself; if it is not, it has reported by then.
        bootstrap.loop.schedule(this::reportMissing, 2 * REPORT_MILLIS, TimeUnit.MILLISECONDS);
      }
    }

    private void arrived(byte[] first) {
      // A loop, not a recursion: many answers may have arrived already.
      for (byte[] each = first; each != null; each = bootstrap.mailboxes.poll(from(0))) {
        read(Answer.of(each, ranks.get(0), blocks.length - received));
        if (done.isDone()) {
          return;
        }
      }
      receive(0, this::arrived);
    }

    private void read(Answer answer) {
      if (answer instanceof Missing news) {
        missing = news.ranks();
        reportMissing();
      } else if (answer instanceof Ended news) {
        throw news.failure().toException();
      } else if (answer instanceof Blocks some) {
        for (byte[] block : some.blocks()) {
          blocks[received++] = block;
        }
        if (received == blocks.length) {
          complete();
        }
      }
    }

    @Override
    List<Integer> missing() {
      return missing;
    }

    @Override
    void drop() {
      bootstrap.mailboxes.abandon(from(0));
    }
  }
}
