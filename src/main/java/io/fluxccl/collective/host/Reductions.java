// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.host.HostAlgorithm.HostCall;
import io.fluxccl.collective.host.HostAlgorithm.TransferMode;
import io.fluxccl.collective.host.SegmentCache.SegmentReference;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.device.host.SharedSegment;
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
    if (newCall.way() == TransferMode.ONE_SHOT || what.collective() == Collective.REDUCE_SCATTER) {
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

  /**
   * The buffers of all ranks in one reduction of a worker, as their descriptors say: whether this
   * rank can access them, and where. Used by one thread at a time.
   */
  private static final class PeerBuffers {
    private final int rank;
    private final MappedPipe[] pipes;
    private final BufferDescriptor mine = new BufferDescriptor();
    private final BufferDescriptor[] descriptors;
    private final SegmentCache[] segments;
    private final SharedSegment[] inUse;
    private int nInUse;
    private HostCall call;
    private CollectiveCall what;
    private long from;
    private boolean toReceive;

    PeerBuffers(int rank, MappedPipe[] pipes, boolean[] sameProcess) {
      this.rank = rank;
      this.pipes = pipes;
      this.descriptors = new BufferDescriptor[pipes.length];
      this.segments = new SegmentCache[pipes.length];
      for (int i = 0; i < pipes.length; i++) {
        descriptors[i] = i == rank ? mine : new BufferDescriptor();
        segments[i] = new SegmentCache(i, sameProcess[i]);
      }
      this.inUse = new SharedSegment[2 * pipes.length];
    }

    /**
     * Begins a call, whose range starts {@code newFrom} bytes after the start of the buffers. In a
     * direct call this sends this rank's descriptor to all peers.
     *
     * @return false if the communicator was aborted
     */
    boolean begin(HostCall newCall, long newFrom) {
      call = newCall;
      what = newCall.call();
      from = newFrom;
      toReceive = false;
      if (newCall.way() != TransferMode.DIRECT) {
        return true;
      }
      newCall.describe(newFrom, newFrom, segments[rank], mine);
      for (int i = 1; i < pipes.length; i++) {
        MappedPipe pipe = pipes[(rank + i) % pipes.length];
        if (pipe.claim() == 0) {
          return false;
        }
        mine.send(pipe);
      }
      toReceive = true;
      return true;
    }

    /** Returns whether peers may be able to access this rank's input. */
    boolean isInputAccessible() {
      return toReceive && (mine.inputId != BufferDescriptor.NONE || mine.input.isPresent());
    }

    /** Receives the peers' descriptors, if there are any left; returns false if aborted. */
    boolean receive() {
      for (int i = 1; i < pipes.length && toReceive; i++) {
        int peer = (rank + i) % pipes.length;
        if (pipes[peer].take() == 0) {
          return false;
        }
        descriptors[peer].read(pipes[peer]);
        pipes[peer].release();
      }
      toReceive = false;
      return true;
    }

    /**
     * Returns whether all ranks can access the buffers that a reduction needs. All ranks get the
     * same answer, because all have the same descriptors.
     */
    boolean areAccessible() {
      return allHaveReferences() || allAreRegistered();
    }

    private boolean allHaveReferences() {
      for (BufferDescriptor each : descriptors) {
        if (!each.input.isPresent()
            || what.collective() == Collective.ALL_REDUCE && !each.output.isPresent()) {
          return false;
        }
      }
      return true;
    }

    private boolean allAreRegistered() {
      for (BufferDescriptor each : descriptors) {
        boolean input = each.inputId == mine.inputId;
        boolean output =
            what.collective() != Collective.ALL_REDUCE
                || each.outputId == mine.outputId && each.outputId != BufferDescriptor.NONE;
        if (!input || !output) {
          return false;
        }
      }
      return mine.inputId != BufferDescriptor.NONE;
    }

    /** Returns whether all ranks can write to the root's output. */
    boolean isRootsOutputAccessible() {
      if (mine.input.isPresent()) {
        return descriptors[what.root()].output.isPresent();
      }
      for (BufferDescriptor each : descriptors) {
        if (!each.reaches(descriptors[what.root()].outputId)) {
          return false;
        }
      }
      return true;
    }

    /** Returns the address in a rank's input, {@code at} bytes after this worker's first byte. */
    long input(int of, long at, long bytes) {
      BufferDescriptor their = descriptors[of];
      return of == rank
          ? call.input() + from + at
          : place(of, their.input, their.inputId, their.inputOffset, at, bytes);
    }

    /** Returns the address in a rank's output, likewise. */
    long output(int of, long at, long bytes) {
      BufferDescriptor their = descriptors[of];
      return of == rank
          ? call.output() + from + at
          : place(of, their.output, their.outputId, their.outputOffset, at, bytes);
    }

    private long place(
        int of, SegmentReference reference, int id, long offset, long at, long bytes) {
      if (!reference.isPresent()) {
        return call.registered(of, id, offset, at + bytes) + at;
      }
      SharedSegment segment = segments[of].use(reference, at + bytes);
      inUse[nInUse++] = segment;
      return segment.address() + reference.offset() + at;
    }

    /** Releases the segments whose addresses were returned in this call. */
    void release() {
      while (nInUse > 0) {
        inUse[--nInUse].release();
      }
    }

    /** Unmaps the peers' memory, after the last call. */
    void close() {
      for (SegmentCache each : segments) {
        each.close();
      }
    }
  }
}
