// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;
import static io.fluxccl.collective.channel.PipeLayout.RING_PIECES;

import java.util.stream.IntStream;

/**
 * The steps of a collective on the host device, which one {@link HostPipeWorker} runs in order.
 *
 * @param <P> the plan of a call
 */
abstract class HostSchedule<P> {
  final HostPipeWorker worker;

  /** The running call. */
  P what;

  HostSchedule(HostPipeWorker worker) {
    this.worker = worker;
  }

  /** Runs a call; returns early if the communicator is aborted. */
  final void run(P call) {
    what = call;
    long steps = begin();
    for (long step = 0; step < steps; step++) {
      if (!step(step)) {
        return;
      }
    }
  }

  /** Prepares {@link #what}; returns the number of steps. */
  abstract long begin();

  /** Runs a step; returns false if the communicator was aborted. */
  abstract boolean step(long step);

  /**
   * An {@link Exchange}: each step sends a piece to every rank and receives one from every rank.
   *
   * <pre>
   *   step t    send piece t
   *             receive piece t - DEPTH, place or reduce it, and forward it
   *             collect piece t - 2 DEPTH
   * </pre>
   *
   * <p>Ranks never wait in a cycle. Sending in step t waits only for receives of peers in steps
   * before t, see {@link PipeLayout#DEPTH}. Receiving in step t waits only for their sends in steps
   * up to t.
   */
  static final class AllPairs extends HostSchedule<Exchange> {
    private final int nRanks;
    private final int[] all;

    AllPairs(HostPipeWorker worker) {
      super(worker);
      this.nRanks = worker.nRanks;
      this.all = IntStream.range(0, nRanks).toArray();
    }

    @Override
    long begin() {
      copyOwn();
      long most = 0;
      for (int peer = 0; peer < nRanks; peer++) {
        most = Math.max(most, pieces(what.give.bytes(peer)));
        most = Math.max(most, pieces(what.take.bytes(peer)));
        most = Math.max(most, pieces(what.forward.bytes(peer)));
        most = Math.max(most, pieces(what.collect.bytes(peer)));
      }
      return most == 0 ? 0 : most + (what.twice ? 2 * DEPTH : DEPTH);
    }

    private long pieces(long bytes) {
      return what.always && bytes >= 0 ? 1 : worker.pieces(bytes);
    }

    private void copyOwn() {
      long begin = worker.layout.begin(what.selfBytes, worker.lane);
      long end = worker.layout.end(what.selfBytes, worker.lane);
      if (end > begin) {
        worker.from(what.selfFrom + begin).to(what.selfTo + begin).copy(end - begin);
      }
    }

    @Override
    boolean step(long step) {
      return move(what.give, what.input, step, true)
          && receiveAndForward(step - DEPTH)
          && move(what.collect, what.gather, step - 2 * DEPTH, false);
    }

    /** Sends a piece to each rank, or receives one from each. */
    private boolean move(PeerByteRanges ranges, long base, long step, boolean isSent) {
      for (int i = 1; i < nRanks && step >= 0; i++) {
        int peer = worker.rankAfter(isSent ? i : nRanks - i);
        long bytes = ranges.bytes(peer);
        if (step < pieces(bytes)) {
          long at = base + ranges.offset(peer) + worker.pieceBegin(bytes, step);
          HostPipeWorker ends =
              isSent ? worker.from(at).toPeer(peer) : worker.fromPeer(peer).to(at);
          if (!ends.copy(worker.pieceBytes(bytes, step))) {
            return false;
          }
        }
      }
      return true;
    }

    private boolean receiveAndForward(long step) {
      return step >= 0 && what.reduces
          ? reduce(step)
          : move(what.take, what.place, step, false)
              && move(what.forward, what.forwardFrom, step, true);
    }

    /**
     * Reduces a piece in rank order, into the output and into the slots to the ranks it goes to.
     */
    private boolean reduce(long step) {
      // All ranks send as many bytes.
      long bytes = what.take.bytes(worker.rankAfter(1));
      if (step >= pieces(bytes)) {
        return true;
      }
      long begin = worker.pieceBegin(bytes, step);
      worker.fromAll(all, what.own + begin);
      for (int i = 1; i < nRanks; i++) {
        if (what.forward.bytes(worker.rankAfter(i)) > 0) {
          worker.toPeer(worker.rankAfter(i));
        }
      }
      if (what.place != 0) {
        worker.to(what.place + begin);
      }
      return worker.combine(worker.pieceBytes(bytes, step), nRanks);
    }
  }

  /**
   * All-reduce around a ring: each rank sends to the next rank and receives from the one before.
   * The buffer has a part for each rank. In the first nRanks - 1 rounds a part goes from rank to
   * rank, and each adds its own values. Then the part is complete, and goes to all ranks in as many
   * rounds more.
   *
   * <p>A sweep of these rounds handles {@link PipeLayout#RING_PIECES} pieces of each part; a large
   * buffer takes several sweeps. All pieces of all rounds are numbered. A rank sends piece i when
   * it has received piece i - RING_PIECES, which is the same piece of the round before. There are
   * more slots than those pieces, so the ranks never wait for each other in a cycle.
   *
   * <p>Each part is combined by one rank after the other, beginning with the rank after its owner,
   * and rounded each time. All ranks get the same bits, which may differ from those of all-pairs.
   */
  static final class Ring extends HostSchedule<PartitionPlan> {
    private final int nRanks;
    private final int next;
    private final int previous;
    private final int rounds;
    private long shareBegin;
    private long shareEnd;
    private long piece;
    private long all;

    Ring(HostPipeWorker worker) {
      super(worker);
      this.nRanks = worker.nRanks;
      this.next = worker.rankAfter(1);
      this.previous = worker.rankAfter(nRanks - 1);
      this.rounds = 2 * (nRanks - 1);
    }

    @Override
    long begin() {
      shareBegin = worker.layout.begin(what.stride(), worker.lane);
      shareEnd = worker.layout.end(what.stride(), worker.lane);
      piece = worker.layout.ringPiece(shareEnd - shareBegin);
      long sweep = piece * RING_PIECES;
      all = (shareEnd - shareBegin + sweep - 1) / sweep * rounds * RING_PIECES;
      return all + RING_PIECES;
    }

    @Override
    boolean step(long number) {
      return (number >= all || number / RING_PIECES % rounds != 0 || send(number))
          && (number < RING_PIECES || receive(number - RING_PIECES));
    }

    /** Returns where a piece begins in its part. */
    private long offset(long number) {
      long sweep = number / RING_PIECES / rounds;
      return shareBegin + (sweep * RING_PIECES + number % RING_PIECES) * piece;
    }

    private long bytes(long number, int part) {
      return Math.max(0, Math.min(piece, Math.min(shareEnd, what.bytes(part)) - offset(number)));
    }

    private boolean send(long number) {
      int own = worker.rank;
      long at = what.input() + what.begin(own) + offset(number);
      return worker.from(at).toPeer(next).copy(bytes(number, own));
    }

    private boolean receive(long number) {
      int round = (int) (number / RING_PIECES % rounds);
      int part = Math.floorMod(worker.rank - 1 - round, nRanks);
      long at = what.begin(part) + offset(number);
      long bytes = bytes(number, part);
      boolean isComplete = round >= nRanks - 2;
      worker.fromPeer(previous);
      if (round < rounds - 1) {
        worker.toPeer(next);
      }
      if (isComplete) {
        worker.to(what.output() + at);
      }
      return round >= nRanks - 1
          ? worker.copy(bytes)
          : worker.from(what.input() + at).combine(bytes, isComplete ? nRanks : 1);
    }
  }
}
