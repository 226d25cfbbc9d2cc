// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

import io.fluxccl.collective.Collective;
import io.fluxccl.device.host.HostMemory;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Collectives along a binary tree of all ranks, on the host device. A rank exchanges data with at
 * most three neighbours, which keeps connections few among many ranks. The ranks of a subtree are
 * consecutive: the middle rank of a range is the parent of the middle ranks of both halves.
 * Broadcast and reduce use the same edges, with their own root as the top.
 *
 * <pre>
 *   step t    receive piece t from the ranks below, combine or gather it, send it upwards
 *             receive piece t - SINGLE_DEPTH from the rank above, and send it downwards
 *
 *                    upwards                                  downwards
 *   all-reduce       the subtree's sum                        the sum of all ranks
 *   reduce           the subtree's sum
 *   reduce-scatter   the subtree's sum, of all shares         the sums of the subtree's shares
 *   all-gather       the subtree's shares                     the shares of all other ranks
 *   broadcast                                                 the root's data
 *   barrier          no bytes                                 no bytes
 * </pre>
 *
 * <p>The top has the result of a piece in the same step, and sends it at once. In a step at most
 * one piece goes through a pipe in a direction, hence {@link PipeLayout#SINGLE_DEPTH}. Ranks never
 * wait in a cycle: a rank waits in step t for a rank below it in step t, for a rank above it in
 * step t or before, and for free slots of steps before t. Values are combined in the order of the
 * subtrees, and rounded at each rank, in the same way for each element.
 */
final class HostTree extends HostSchedule<PartitionPlan> {
  private static final int NOBODY = -1;

  /** A piece's range of bytes; the bytes of a range of ranks go through a pipe as one message. */
  private record Range(long begin, long end) {
    static final Range EMPTY = new Range(0, 0);

    long bytes() {
      return end - begin;
    }

    Range and(long from, long to) {
      long low = Math.max(begin, from);
      long high = Math.min(end, to);
      return high > low ? new Range(low, high) : EMPTY;
    }
  }

  /**
   * A rank's place in the tree.
   *
   * @param first the first rank of its subtree
   * @param last one more than the last rank of its subtree
   */
  private record Place(int rank, int parent, int first, int last) {
    static Place of(int rank, int nRanks) {
      int low = 0;
      int high = nRanks;
      int parent = NOBODY;
      for (int middle = high / 2; middle != rank; middle = low + high >>> 1) {
        parent = middle;
        low = rank > middle ? middle + 1 : low;
        high = rank < middle ? middle : high;
      }
      return new Place(rank, parent, low, high);
    }

    int left() {
      return first < rank ? first + rank >>> 1 : NOBODY;
    }

    int right() {
      return rank + 1 < last ? rank + 1 + last >>> 1 : NOBODY;
    }

    /** Returns the neighbours in rank order. */
    int[] neighbours() {
      return IntStream.of(parent, left(), right())
          .filter(peer -> peer != NOBODY)
          .sorted()
          .toArray();
    }

    /** Returns the neighbour on the way to another rank. */
    int towards(int other) {
      return other < first || other >= last ? parent : other < rank ? left() : right();
    }
  }

  private final Place place;
  private final int[] neighbours;

  // Of the running call: the rank above, NOBODY on the top; the ranks below, in rank order.
  private int above;
  private final int[] below = new int[3];
  private int nBelow;

  private long begin;
  private long end;
  private long piece;
  private long pieces;
  private long lag;

  HostTree(HostPipeWorker worker) {
    super(worker);
    this.place = Place.of(worker.rank, worker.nRanks);
    this.neighbours = place.neighbours();
  }

  /** Returns a rank's neighbours in the tree, in rank order: at most three. */
  static List<Integer> neighbours(int rank, int nRanks) {
    return IntStream.of(Place.of(rank, nRanks).neighbours()).boxed().toList();
  }

  /** Returns the number of edges from the top to the ranks furthest below. */
  static int depth(int nRanks) {
    return Integer.SIZE - 1 - Integer.numberOfLeadingZeros(nRanks);
  }

  @Override
  long begin() {
    turn();
    boolean isOfShares = isAllGather() || isReduceScatter();
    long total = isOfShares ? worker.nRanks * what.size() : what.size();
    begin = worker.layout.begin(total, worker.lane);
    end = worker.layout.end(total, worker.lane);
    piece = worker.layout.treePiece(end - begin);
    pieces = what.kind() == Collective.BARRIER ? 1 : (end - begin + piece - 1) / piece;
    lag = above == NOBODY || !goesUp() || !goesDown() ? 0 : SINGLE_DEPTH;
    return pieces + lag;
  }

  @Override
  boolean step(long step) {
    return (step >= pieces || rise(piece(step))) && (step < lag || descend(piece(step - lag)));
  }

  private Range piece(long number) {
    return new Range(begin + number * piece, Math.min(end, begin + (number + 1) * piece));
  }

  /** Makes the call's root the top of the tree, if it has one. */
  private void turn() {
    int root = what.kind().hasRoot() ? what.root() : worker.nRanks / 2;
    above = root == worker.rank ? NOBODY : place.towards(root);
    nBelow = 0;
    for (int peer : neighbours) {
      if (peer != above) {
        below[nBelow++] = peer;
      }
    }
  }

  private boolean goesUp() {
    return what.kind() != Collective.BROADCAST;
  }

  private boolean goesDown() {
    return what.kind() != Collective.REDUCE;
  }

  private boolean isAllGather() {
    return what.kind() == Collective.ALL_GATHER;
  }

  private boolean isReduceScatter() {
    return what.kind() == Collective.REDUCE_SCATTER;
  }

  /** Returns the part of a piece that the shares of a rank below and of its subtree are. */
  private Range sharesBelow(Range piece, int peer) {
    int from = peer < worker.rank ? place.first() : worker.rank + 1;
    int to = peer < worker.rank ? worker.rank : place.last();
    return piece.and(from * what.size(), to * what.size());
  }

  /** Returns the part of a piece that this rank's share is. */
  private Range ownShare(Range piece) {
    return piece.and(worker.rank * what.size(), (worker.rank + 1) * what.size());
  }

  /** Returns the part of a piece that the shares of this rank's subtree are. */
  private Range sharesHere(Range piece) {
    return piece.and(place.first() * what.size(), place.last() * what.size());
  }

  private boolean rise(Range piece) {
    return switch (what.kind()) {
      case BROADCAST -> above != NOBODY || copyToOutput(piece, 0);
      case ALL_GATHER -> gather(piece);
      default -> combine(piece);
    };
  }

  private boolean descend(Range piece) {
    return switch (what.kind()) {
      case REDUCE -> true;
      case ALL_GATHER -> distribute(piece);
      case REDUCE_SCATTER -> above == NOBODY || scatter(piece);
      default -> forward(piece);
    };
  }

  private boolean copyToOutput(Range range, long offset) {
    long from = what.input() + range.begin() - offset;
    return worker.from(from).to(what.output() + range.begin()).copy(range.bytes());
  }

  /** All-gather: places the shares of the ranks below and of this rank, and sends them upwards. */
  private boolean gather(Range piece) {
    for (int i = 0; i < nBelow; i++) {
      Range shares = sharesBelow(piece, below[i]);
      long to = what.output() + shares.begin();
      if (shares.bytes() > 0 && !worker.fromPeer(below[i]).to(to).copy(shares.bytes())) {
        return false;
      }
    }
    copyToOutput(ownShare(piece), worker.rank * what.size());
    Range all = sharesHere(piece);
    return above == NOBODY
        || all.bytes() == 0
        || worker.from(what.output() + all.begin()).toPeer(above).copy(all.bytes());
  }

  /** All-gather: places the shares that the rank above has, and sends to each rank below others. */
  private boolean distribute(Range piece) {
    Range here = sharesHere(piece);
    if (above != NOBODY && piece.bytes() > here.bytes()) {
      long slot = worker.pipe(above).take();
      if (slot == 0) {
        return false;
      }
      copyOthers(piece, here, slot, true);
      worker.pipe(above).release();
    }
    for (int i = 0; i < nBelow; i++) {
      int peer = below[i];
      Range there = sharesBelow(piece, peer);
      if (piece.bytes() > there.bytes()) {
        long slot = worker.pipe(peer).claim();
        if (slot == 0) {
          return false;
        }
        copyOthers(piece, there, slot, false);
        worker.pipe(peer).publish(piece.bytes() - there.bytes());
      }
    }
    return true;
  }

  /** Copies a piece without a part of it between a slot, where it is contiguous, and the output. */
  private void copyOthers(Range piece, Range without, long slot, boolean toOutput) {
    boolean isWhole = without.bytes() == 0;
    long before = (isWhole ? piece.end() : without.begin()) - piece.begin();
    long after = isWhole ? 0 : piece.end() - without.end();
    long head = what.output() + piece.begin();
    long tail = what.output() + without.end();
    if (toOutput) {
      HostMemory.copy(head, slot, before);
      HostMemory.copy(tail, slot + before, after);
    } else {
      HostMemory.copy(slot, head, before);
      HostMemory.copy(slot + before, tail, after);
    }
  }

  /** Combines a piece of the ranks below and of this rank, and sends the result upwards. */
  private boolean combine(Range piece) {
    long own = what.input() + piece.begin();
    int next = 0;
    while (next < nBelow && below[next] < worker.rank) {
      worker.fromPeer(below[next++]);
    }
    worker.from(own);
    while (next < nBelow) {
      worker.fromPeer(below[next++]);
    }
    if (above != NOBODY) {
      return worker.toPeer(above).combine(piece.bytes(), 1);
    }
    return isReduceScatter()
        ? combineShares(piece)
        : worker.to(what.output() + piece.begin()).combine(piece.bytes(), worker.nRanks);
  }

  /** Combines on the top of the tree the shares of each rank below, and the own one. */
  private boolean combineShares(Range piece) {
    if (!worker.take()) {
      return false;
    }
    for (int i = 0; i < nBelow; i++) {
      Range shares = sharesBelow(piece, below[i]);
      if (shares.bytes() > 0 && !combineShare(worker.toPeer(below[i]), piece, shares)) {
        return false;
      }
    }
    Range own = ownShare(piece);
    boolean isCombined = combineShare(worker.to(outputOf(own)), piece, own);
    worker.release();
    return isCombined;
  }

  private boolean combineShare(HostPipeWorker target, Range piece, Range share) {
    return target.combine(share.begin() - piece.begin(), share.bytes(), worker.nRanks);
  }

  /** Returns where a part of this rank's share goes, if the output has that share alone. */
  private long outputOf(Range own) {
    return what.output() + own.begin() - worker.rank * what.size();
  }

  /** Reduce-scatter: passes on the sums of the shares of the ranks below, and takes the own one. */
  private boolean scatter(Range piece) {
    Range here = sharesHere(piece);
    if (here.bytes() == 0) {
      return true;
    }
    long slot = worker.pipe(above).take();
    if (slot == 0) {
      return false;
    }
    for (int i = 0; i < nBelow; i++) {
      Range shares = sharesBelow(piece, below[i]);
      long from = slot + shares.begin() - here.begin();
      if (shares.bytes() > 0 && !worker.from(from).toPeer(below[i]).copy(shares.bytes())) {
        return false;
      }
    }
    Range own = ownShare(piece);
    worker.from(slot + own.begin() - here.begin()).to(outputOf(own)).copy(own.bytes());
    worker.pipe(above).release();
    return true;
  }

  /** Places a piece that every rank gets, and sends it to the ranks below. */
  private boolean forward(Range piece) {
    long at = what.output() + piece.begin();
    if (above != NOBODY && !worker.fromPeer(above).to(at).copy(piece.bytes())) {
      return false;
    }
    for (int i = 0; i < nBelow; i++) {
      if (!worker.from(at).toPeer(below[i]).copy(piece.bytes())) {
        return false;
      }
    }
    return true;
  }
}
