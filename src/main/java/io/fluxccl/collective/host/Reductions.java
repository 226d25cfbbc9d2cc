// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostReduction;
import java.util.function.IntPredicate;

/**
 * The collectives that reduce, for one worker. Each element is reduced in rank order, by one rank
 * or by all in the same way, so that all ranks get the same bits.
 *
 * <ul>
 *   <li>One shot: each rank sends pieces of its input to the ranks that need them, and these reduce
 *       the pieces as they arrive.
 *   <li>Two phases, of an all-reduce or reduce: in each round a rank receives all ranks' pieces of
 *       the chunk with its number, reduces them into the peers' pipes, and takes the other chunks'
 *       results. Three rounds are in flight: one is sent, one reduced, one collected.
 *   <li>Direct, on memory that all ranks have registered or used before: each rank reduces its
 *       chunk from the ranks' inputs into the ranks' outputs.
 * </ul>
 *
 * <p>All ranks wait in the same order: the slowest rank never waits for a free slot, because the
 * others have taken all but a few of its messages.
 */
final class Reductions {
  private static final long LARGEST_STAGED_PIECE = 16 << 10;

  private final int rank;
  private final int nRanks;
  private final MappedPipe[] pipes;

  /** The most bytes of a message. */
  private final long piece;

  private final long stagedPiece;
  private final PipeGroup group;
  private final PeerBuffers buffers;
  private final long[] sources;
  private final long[] targets;

  /** The ranks that receive the result of an all-reduce or reduce. */
  private final IntPredicate receivers = peer -> getsResult(peer);

  // The call, while it runs.
  private HostReduction reduction;
  private HostCall call;
  private CollectiveCall what;
  private long from;
  private long to;

  Reductions(int rank, MappedPipe[] pipes, PipeGroup group, boolean[] sameProcess) {
    this.rank = rank;
    this.nRanks = pipes.length;
    this.pipes = pipes;
    this.piece = pipes[(rank + 1) % nRanks].payloadBytes();
    this.stagedPiece = Math.min(LARGEST_STAGED_PIECE, piece);
    this.group = group;
    this.buffers = new PeerBuffers(rank, pipes, sameProcess);
    this.sources = new long[nRanks];
    this.targets = new long[nRanks];
  }

  /**
   * Reduces a range of bytes of the whole buffer, or of each part of a reduce-scatter. Returns
   * early if the communicator is aborted.
   */
  void run(HostReduction with, HostCall newCall, long newFrom, long newTo) {
    reduction = with;
    call = newCall;
    what = newCall.call();
    from = newFrom;
    to = newTo;
    if (!buffers.begin(newCall, newFrom)) {
      return;
    }
    if (buffers.isInputAccessible()) {
      if (!buffers.receive()) {
        return;
      }
      if (buffers.areAccessible()) {
        reduceDirectly();
        return;
      }
    }
    if (newCall.way() == HostCall.TransferMode.ONE_SHOT
        || what.collective() == Collective.REDUCE_SCATTER) {
      oneShot();
    } else {
      twoPhases();
    }
  }

  private void reduceDirectly() {
    try {
      reduceFromAll();
    } finally {
      buffers.release();
    }
    group.barrier(); // no rank's buffers are in use by others any more
  }

  private void reduceFromAll() {
    boolean scatters = what.collective() == Collective.REDUCE_SCATTER;
    boolean toRoot = what.collective() == Collective.REDUCE;
    boolean rootAlone = toRoot && !buffers.isRootsOutputAccessible();
    long bytes = to - from;
    long begin = 0;
    long end = bytes;
    if (rootAlone) {
      end = rank == what.root() ? bytes : 0;
    } else if (!scatters) {
      begin = CacheLines.begin(bytes, nRanks, rank);
      end = CacheLines.begin(bytes, nRanks, rank + 1);
    }
    int nTargets = 0;
    for (int peer = 0; peer < nRanks; peer++) {
      sources[peer] = buffers.input(peer, what.sendOffset(rank) + begin, end - begin);
      boolean getsResult =
          switch (what.collective()) {
            case ALL_REDUCE -> true;
            case REDUCE -> peer == what.root() && (peer == rank || !rootAlone);
            default -> peer == rank;
          };
      if (getsResult) {
        targets[nTargets++] = buffers.output(peer, begin, end - begin);
      }
    }
    if (begin < end) {
      reduce(nTargets, end - begin);
    }
  }

  /** Returns whether a rank gets the whole result. */
  private boolean getsResult(int peer) {
    return what.collective() == Collective.ALL_REDUCE || peer == what.root();
  }

  /** Returns the rank at a cyclic distance after this one. */
  private int peer(int distance) {
    return (rank + distance) % nRanks;
  }

  /** Unmaps the peers' memory, after the last call. */
  void close() {
    buffers.close();
  }

  private void reduce(int nTargets, long bytes) {
    long count = bytes / what.type().size();
    reduction.reduce(what.type(), what.op(), sources, nRanks, targets, nTargets, count, nRanks);
  }

  private void oneShot() {
    boolean receives = what.collective() == Collective.REDUCE_SCATTER || getsResult(rank);
    long pieces = (to - from + piece - 1) / piece;
    // Send a piece ahead, so that a peer finds the next piece copied.
    for (long number = 0; number <= pieces; number++) {
      if (number < pieces && !sendInput(number)) {
        return;
      }
      if (number > 0 && !reduceInput(number - 1, receives)) {
        return;
      }
    }
  }

  private boolean sendInput(long number) {
    long at = from + number * piece;
    long length = Math.min(piece, to - at);
    for (int i = 1; i < nRanks; i++) {
      int peer = peer(i);
      if (what.sendBytes(rank, peer) > 0
          && !pipes[peer].send(call.input() + what.sendOffset(peer) + at, length)) {
        return false;
      }
    }
    return true;
  }

  private boolean reduceInput(long number, boolean receives) {
    if (!buffers.receive()) {
      return false;
    }
    if (!receives) {
      return true;
    }
    long at = from + number * piece;
    if (!group.take(sources, call.input() + what.sendOffset(rank) + at)) {
      return false;
    }
    targets[0] = call.output() + at;
    reduce(1, Math.min(piece, to - at));
    group.release();
    return true;
  }

  private void twoPhases() {
    long stride = nRanks * stagedPiece;
    long rounds = (to - from + stride - 1) / stride;
    for (long round = 0; round < rounds + 2; round++) {
      boolean goesOn =
          (round >= rounds || sendRound(round))
              && (round < 1 || round > rounds || reduceRound(round - 1))
              && (round < 2 || collectRound(round - 2));
      if (!goesOn) {
        return;
      }
    }
  }

  /** Returns where a rank's piece of a round begins, which is where the rank before's ends. */
  private long begin(long round, int of) {
    long base = from + round * nRanks * stagedPiece;
    return base + CacheLines.begin(Math.min(nRanks * stagedPiece, to - base), nRanks, of);
  }

  private boolean sendRound(long round) {
    for (int i = 1; i < nRanks; i++) {
      int peer = peer(i);
      long at = begin(round, peer);
      long length = begin(round, peer + 1) - at;
      if (length > 0 && !pipes[peer].send(call.input() + at, length)) {
        return false;
      }
    }
    return true;
  }

  private boolean reduceRound(long round) {
    if (!buffers.receive()) {
      return false;
    }
    long at = begin(round, rank);
    long length = begin(round, rank + 1) - at;
    if (length == 0) {
      return true;
    }
    if (!group.take(sources, call.input() + at)) {
      return false;
    }
    int nTargets = group.claim(targets, receivers);
    if (nTargets < 0) {
      return false;
    }
    if (getsResult(rank)) {
      targets[nTargets++] = call.output() + at;
    }
    reduce(nTargets, length);
    group.release();
    group.publish(length, receivers);
    return true;
  }

  private boolean collectRound(long round) {
    if (!getsResult(rank)) {
      return true;
    }
    for (int i = 1; i < nRanks; i++) {
      int peer = peer(i);
      long at = begin(round, peer);
      long length = begin(round, peer + 1) - at;
      if (length > 0 && !pipes[peer].receive(call.output() + at, length)) {
        return false;
      }
    }
    return true;
  }
}
