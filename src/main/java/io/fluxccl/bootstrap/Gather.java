// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.GatherAnswer.Blocks;
import io.fluxccl.bootstrap.GatherAnswer.GaveUp;
import io.fluxccl.bootstrap.GatherAnswer.Missing;
import io.fluxccl.bootstrap.Mailboxes.Receiver;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

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
        () -> bootstrap.operations.late(operation, missing(), deadline),
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

  final void send(int peer, Message message) {
    bootstrap.post(peer, key, message, NonblockingFuture.create());
  }

  final void complete() {
    done.complete(Collections.unmodifiableList(Arrays.asList(blocks)));
  }

  /** Collects the blocks. */
  private static final class Leader extends Gather {
    private static final int REPORTED_RANKS_PER_MILLI = 4;

    private final List<Part> parts = new ArrayList<>();
    private int arrived;
    private ScheduledFuture<?> report;

    Leader(CollectiveBootstrap bootstrap, Turn turn) {
      super(bootstrap, turn);
      for (int i = 1; i < ranks.size(); i++) {
        parts.add(new Part(i));
      }
    }

    @Override
    void begin(byte[] mine) {
      arrived(0, mine);
      for (Part part : parts) {
        if (!done.isDone()) {
          bootstrap.receive(part.stream(), part);
        }
      }
    }

    private void arrived(int position, byte[] block) {
      blocks[position] = block;
      arrived++;
      if (arrived == blocks.length) {
        Blocks.inBatches(blocks).forEach(this::answerAll);
        stopReports();
        complete();
      } else if (report == null) {
        long millis = Math.max(REPORT_MILLIS, blocks.length / REPORTED_RANKS_PER_MILLI);
        report = bootstrap.loop.schedule(this::report, millis, TimeUnit.MILLISECONDS);
      }
    }

    /** Sends the list of missing ranks to each rank whose block has arrived. */
    private void report() {
      report = null;
      Message news = new Missing(missing()).toMessage();
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

    private void answerAll(GatherAnswer answer) {
      sendAll(answer.toMessage());
    }

    private void sendAll(Message message) {
      ranks.subList(1, ranks.size()).forEach(peer -> send(peer, message));
    }

    @Override
    List<Integer> missing() {
      List<Integer> missing = new ArrayList<>();
      for (int i = 0; i < blocks.length; i++) {
        if (blocks[i] == null) {
          missing.add(ranks.get(i));
        }
      }
      return missing;
    }

    // From now on the other ranks' gathers can't succeed, whatever their deadlines are.
    @Override
    void failed() {
      drop();
      if (bootstrap.hasEnded()) {
        return; // the job's failure gives them the reason
      }
      FluxCclException reason = FluxCclException.from(done.handle((all, why) -> why).join());
      if (reason instanceof RemoteFailure) {
        sendAll(Message.brokenBy(reason.rank()));
      } else if (reason instanceof Timeout) {
        answerAll(new GaveUp(reason.rank(), reason.getMessage()));
      }
    }

    @Override
    void drop() {
      stopReports();
      for (Part part : parts) {
        if (blocks[part.position] == null) {
          bootstrap.abandon(part.stream(), part);
        }
      }
    }

    /** Waits for the block of one rank. */
    private final class Part implements Receiver {
      final int position;

      Part(int position) {
        this.position = position;
      }

      StreamKey stream() {
        return key.from(ranks.get(position));
      }

      @Override
      public boolean accept(Message message) {
        arrived(position, message.bytes());
        return true;
      }

      @Override
      public void fail(FluxCclException reason) {
        done.completeExceptionally(reason);
      }
    }
  }

  /** Sends its block to the leader and waits for all blocks. */
  private static final class Follower extends Gather implements Receiver {
    private final int leader;
    private final StreamKey inbound;
    private List<Integer> missing;
    private int received;

    Follower(CollectiveBootstrap bootstrap, Turn turn) {
      super(bootstrap, turn);
      leader = ranks.get(0);
      inbound = key.from(leader);
      missing = List.of(leader);
    }

    @Override
    void begin(byte[] mine) {
      send(leader, Message.of(mine));
      bootstrap.receive(inbound, this);
      if (isReported()) {
        // The leader may be missing itself; if it is not, it has reported by then.
        bootstrap.loop.schedule(this::reportMissing, 2 * REPORT_MILLIS, TimeUnit.MILLISECONDS);
      }
    }

    @Override
    public boolean accept(Message message) {
      // A loop, not a recursion: many answers may have arrived already.
      for (Message each = message; each != null; each = bootstrap.mailboxes.poll(inbound)) {
        try {
          read(each);
        } catch (FluxCclException malformed) {
          done.completeExceptionally(malformed);
        }
        if (done.isDone()) {
          return true;
        }
      }
      bootstrap.receive(inbound, this);
      return true;
    }

    private void read(Message message) {
      if (message.broken()) {
        int rank = message.leftRank();
        String text = "%s: rank %s left before it sent its part";
        throw RemoteFailure.of(rank, text, bootstrap.describe(), rank);
      }
      GatherAnswer answer = GatherAnswer.of(message, leader, blocks.length - received);
      if (answer instanceof Missing news) {
        missing = news.ranks();
        reportMissing();
      } else if (answer instanceof GaveUp news) {
        throw new Timeout(news.rank(), news.reason());
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
    public void fail(FluxCclException reason) {
      done.completeExceptionally(reason);
    }

    @Override
    List<Integer> missing() {
      return missing;
    }

    @Override
    void drop() {
      bootstrap.abandon(inbound, this);
    }
  }
}
