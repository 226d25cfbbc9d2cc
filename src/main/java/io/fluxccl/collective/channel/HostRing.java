// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.RING_PIECES;

import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;

/**
 * All-reduce around a ring, on the host device, as one lane runs it: each rank sends to the next
 * rank and receives from the one before. The buffer has a part for each rank. In the first nRanks -
 * 1 rounds a part goes from rank to rank, and each adds its own values. Then the part is complete,
 * and goes to all ranks in as many rounds more.
 *
 * <p>A sweep of these rounds handles {@link PipeLayout#RING_PIECES} pieces of each part; a large
 * buffer takes several sweeps. All pieces of all rounds are numbered. A rank sends piece i when it
 * has received piece i - RING_PIECES, which is the same piece of the round before. There are more
 * slots than those pieces, so the ranks never wait for each other in a cycle.
 *
 * <p>Each part is combined by one rank after the other, beginning with the rank after its owner,
 * and rounded each time. All ranks get the same bits, which may differ from those of all-pairs.
 */
final class HostRing {
  private final HostPipeWorker lane;
  private final int nRanks;
  private final Pipe next;
  private final Pipe previous;
  private PartitionPlan what;
  private HostReduction reduction;
  private long shareBegin;
  private long shareEnd;
  private long piece;

  HostRing(HostPipeWorker lane) {
    this.lane = lane;
    this.nRanks = lane.nRanks;
    this.next = lane.pipes[lane.rankAfter(1)];
    this.previous = lane.pipes[lane.rankAfter(nRanks - 1)];
  }

  void run(PartitionPlan call, HostReduction with) {
    what = call;
    reduction = with;
    shareBegin = lane.layout.begin(what.stride(), lane.lane);
    shareEnd = lane.layout.end(what.stride(), lane.lane);
    piece = lane.layout.ringPiece(shareEnd - shareBegin);
    long sweep = piece * RING_PIECES;
    long sweeps = (shareEnd - shareBegin + sweep - 1) / sweep;
    int rounds = 2 * (nRanks - 1);
    long all = sweeps * rounds * RING_PIECES;
    for (long number = 0; number < all + RING_PIECES; number++) {
      boolean begins = number / RING_PIECES % rounds == 0;
      if (begins && number < all && !begin(number, rounds)) {
        return;
      }
      if (number >= RING_PIECES && !receive(number - RING_PIECES, rounds)) {
        return;
      }
    }
  }

  /** Returns where a piece of a part begins in the buffer. */
  private long at(long number, int rounds, int part) {
    return what.begin(part) + offset(number, rounds);
  }

  private long offset(long number, int rounds) {
    long sweep = number / RING_PIECES / rounds;
    return shareBegin + (sweep * RING_PIECES + number % RING_PIECES) * piece;
  }

  private long bytes(long number, int rounds, int part) {
    long offset = offset(number, rounds);
    long end = Math.min(shareEnd, what.bytes(part));
    return Math.max(0, Math.min(piece, end - offset));
  }

  private boolean begin(long number, int rounds) {
    long bytes = bytes(number, rounds, lane.rank);
    return next.send(what.input() + at(number, rounds, lane.rank), bytes);
  }

  private boolean receive(long number, int rounds) {
    int round = (int) (number / RING_PIECES % rounds);
    int part = Math.floorMod(lane.rank - 1 - round, nRanks);
    long at = at(number, rounds, part);
    long bytes = bytes(number, rounds, part);
    boolean isSentOn = round < rounds - 1;
    boolean isComplete = round >= nRanks - 2;
    lane.sources[0] = previous.take();
    int targets = 0;
    if (lane.sources[0] == 0) {
      return false;
    }
    if (isSentOn) {
      lane.targets[targets] = next.claim();
      if (lane.targets[targets++] == 0) {
        return false;
      }
    }
    if (isComplete) {
      lane.targets[targets++] = what.output() + at;
    }
    if (bytes > 0 && round < nRanks - 1) {
      lane.sources[1] = what.input() + at;
      int divisor = isComplete ? nRanks : 1;
      lane.reduce(reduction, what.type(), what.op(), 2, targets, bytes, divisor);
    } else if (bytes > 0) {
      for (int i = 0; i < targets; i++) {
        HostMemory.copy(lane.targets[i], lane.sources[0], bytes);
      }
    }
    if (isSentOn) {
      next.publish(bytes);
    }
    previous.release();
    return true;
  }
}
