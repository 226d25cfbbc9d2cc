package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.device.host.SharedSegment;

/**
 * The collectives that reduce, for one worker. Each element is reduced in rank order, by one rank
 * or by all alike, so that all ranks get the same bits.
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
 * <p>All ranks wait in the same order: the rank that is furthest behind never waits for room,
 * because the others have taken all but a few of its messages.
 */
final class Reductions {
  private static final long STAGED_PIECE = 16 << 10;
  private static final long PIECE = Worker.RING.payloadBytes();

  private final int rank;
  private final int nRanks;
  private final MappedPipe[] pipes;
  private final BufferDescriptor mine = new BufferDescriptor();
  private final BufferDescriptor[] descriptors;
  private final long[] sources;
  private final long[] targets;
  private final SegmentCache[] segments;
  private final SharedSegment[] inUse;
  private int nInUse;

  // The call, while it runs.
  private HostReduction reduction;
  private HostCall call;
  private CollectiveCall what;
  private long from;
  private long to;
  private boolean descriptorsToTake;

  Reductions(int rank, MappedPipe[] pipes, boolean[] sameProcess) {
    this.rank = rank;
    this.nRanks = pipes.length;
    this.pipes = pipes;
    this.descriptors = new BufferDescriptor[nRanks];
    this.sources = new long[nRanks];
    this.targets = new long[nRanks];
    this.segments = new SegmentCache[nRanks];
    for (int i = 0; i < nRanks; i++) {
      descriptors[i] = i == rank ? mine : new BufferDescriptor();
      segments[i] = new SegmentCache(i, sameProcess[i]);
    }
    this.inUse = new SharedSegment[2 * nRanks];
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
    descriptorsToTake = false;
    if (newCall.way() == HostCall.Way.DIRECT) {
      if (!sendDescriptors()) {
        return;
      }
      if (mine.inputId != BufferDescriptor.NONE || mine.input.isPresent()) {
        if (!takeDescriptors()) {
          return;
        }
        if (canReduceDirectly()) {
          reduceDirectly();
          return;
        }
      }
    }
    if (newCall.way() == HostCall.Way.ONE_SHOT || what.collective() == Collective.REDUCE_SCATTER) {
      oneShot();
    } else {
      twoPhases();
    }
  }

  private boolean sendDescriptors() {
    call.describe(from, from, segments[rank], mine);
    for (int i = 1; i < nRanks; i++) {
      MappedPipe pipe = pipes[(rank + i) % nRanks];
      if (pipe.claim() == 0) {
        return false;
      }
      mine.send(pipe);
    }
    descriptorsToTake = true;
    return true;
  }

  /** Takes the peers' descriptors, if there are any and they have not been taken yet. */
  private boolean takeDescriptors() {
    for (int i = 1; i < nRanks && descriptorsToTake; i++) {
      int peer = (rank + i) % nRanks;
      if (pipes[peer].take() == 0) {
        return false;
      }
      descriptors[peer].read(pipes[peer]);
      pipes[peer].release();
    }
    descriptorsToTake = false;
    return true;
  }

  /** Returns the same on every rank, because all have the same descriptors. */
  private boolean canReduceDirectly() {
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

  private boolean isRootsOutputReached() {
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

  private void reduceDirectly() {
    try {
      reduceFromAll();
    } finally {
      while (nInUse > 0) {
        inUse[--nInUse].release();
      }
    }
    MappedPipe.barrier(pipes, rank); // no rank's buffers are in use by others any more
  }

  private void reduceFromAll() {
    boolean scatters = what.collective() == Collective.REDUCE_SCATTER;
    boolean toRoot = what.collective() == Collective.REDUCE;
    boolean rootAlone = toRoot && !isRootsOutputReached();
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
      sources[peer] = input(peer, what.sendOffset(rank) + begin, end - begin);
      if (peer == rank
          ? !toRoot || rank == what.root()
          : what.collective() == Collective.ALL_REDUCE) {
        targets[nTargets++] = output(peer, begin, end - begin);
      } else if (toRoot && peer == what.root() && !rootAlone) {
        targets[nTargets++] = output(peer, begin, end - begin);
      }
    }
    if (begin < end) {
      reduce(nTargets, end - begin);
    }
  }

  /** Returns where a rank's input is, so many bytes behind this worker's first. */
  private long input(int of, long at, long bytes) {
    BufferDescriptor their = descriptors[of];
    return of == rank
        ? call.input() + from + at
        : place(of, their.input, their.inputId, their.inputOffset, at, bytes);
  }

  private long output(int of, long at, long bytes) {
    BufferDescriptor their = descriptors[of];
    return of == rank
        ? call.output() + from + at
        : place(of, their.output, their.outputId, their.outputOffset, at, bytes);
  }

  private long place(int of, SegmentReference reference, int id, long offset, long at, long bytes) {
    if (!reference.isPresent()) {
      return call.registration(id).addressOn(of) + offset + at;
    }
    SharedSegment segment = segments[of].use(reference, at + bytes);
    inUse[nInUse++] = segment;
    return segment.address() + reference.offset() + at;
  }

  /** Unmaps the peers' memory, after the last call. */
  void close() {
    for (SegmentCache each : segments) {
      each.close();
    }
  }

  private void reduce(int nTargets, long bytes) {
    reduction.reduce(
        what.type(),
        what.op(),
        sources,
        nRanks,
        targets,
        nTargets,
        bytes / what.type().size(),
        nRanks);
  }

  private void oneShot() {
    boolean receives = what.collective() != Collective.REDUCE || rank == what.root();
    long pieces = (to - from + PIECE - 1) / PIECE;
    // Send a piece ahead, so that a peer finds the next piece copied.
    for (long piece = 0; piece <= pieces; piece++) {
      if (piece < pieces && !sendInput(piece)) {
        return;
      }
      if (piece > 0 && !reduceInput(piece - 1, receives)) {
        return;
      }
    }
  }

  private boolean sendInput(long piece) {
    long at = from + piece * PIECE;
    long length = Math.min(PIECE, to - at);
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (what.sendBytes(rank, peer) > 0
          && !send(peer, call.input() + what.sendOffset(peer) + at, length)) {
        return false;
      }
    }
    return true;
  }

  private boolean send(int peer, long source, long length) {
    MappedPipe pipe = pipes[peer];
    long slot = pipe.claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot, source, length);
    pipe.publish(length);
    return true;
  }

  private boolean reduceInput(long piece, boolean receives) {
    if (!takeDescriptors()) {
      return false;
    }
    if (!receives) {
      return true;
    }
    long at = from + piece * PIECE;
    if (!awaitSources(call.input() + what.sendOffset(rank) + at)) {
      return false;
    }
    targets[0] = call.output() + at;
    reduce(1, Math.min(PIECE, to - at));
    releaseSources();
    return true;
  }

  /** Waits for a piece from every peer. */
  private boolean awaitSources(long own) {
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      sources[peer] = pipes[peer].take();
      if (sources[peer] == 0) {
        return false;
      }
    }
    sources[rank] = own;
    return true;
  }

  private void releaseSources() {
    for (int i = 1; i < nRanks; i++) {
      pipes[(rank + i) % nRanks].release();
    }
  }

  private void twoPhases() {
    long stride = nRanks * STAGED_PIECE;
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
    long base = from + round * nRanks * STAGED_PIECE;
    return base + CacheLines.begin(Math.min(nRanks * STAGED_PIECE, to - base), nRanks, of);
  }

  private boolean sendRound(long round) {
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      long at = begin(round, peer);
      long length = begin(round, peer + 1) - at;
      if (length > 0 && !send(peer, call.input() + at, length)) {
        return false;
      }
    }
    return true;
  }

  private boolean reduceRound(long round) {
    if (!takeDescriptors()) {
      return false;
    }
    long at = begin(round, rank);
    long length = begin(round, rank + 1) - at;
    if (length == 0) {
      return true;
    }
    if (!awaitSources(call.input() + at)) {
      return false;
    }
    boolean toAll = what.collective() == Collective.ALL_REDUCE;
    int nTargets = 0;
    if (toAll || rank == what.root()) {
      targets[nTargets++] = call.output() + at;
    }
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (toAll || peer == what.root()) {
        targets[nTargets] = pipes[peer].claim();
        if (targets[nTargets++] == 0) {
          return false;
        }
      }
    }
    reduce(nTargets, length);
    releaseSources();
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (toAll || peer == what.root()) {
        pipes[peer].publish(length);
      }
    }
    return true;
  }

  private boolean collectRound(long round) {
    if (what.collective() == Collective.REDUCE && rank != what.root()) {
      return true;
    }
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      long at = begin(round, peer);
      long length = begin(round, peer + 1) - at;
      if (length > 0) {
        long slot = pipes[peer].take();
        if (slot == 0) {
          return false;
        }
        HostMemory.copy(call.output() + at, slot, length);
        pipes[peer].release();
      }
    }
    return true;
  }
}
