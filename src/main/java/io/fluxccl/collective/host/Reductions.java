package io.fluxccl.collective.host;

import static io.fluxccl.collective.host.PipeDescriptor.PAYLOAD;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.device.host.SharedSegment;

/**
 * The collectives that combine values, for one strand. Always in rank order, each element by one
 * rank or by all alike, so that everybody gets the same bits.
 *
 * <ul>
 *   <li>One shot: pieces of the input to everybody who needs them, who reduce them as they come.
 *   <li>Two phases, of an all-reduce or reduce: round by round, each rank gets everybody's piece of
 *       the chunk that bears its number, reduces them straight into the peers' pipes, and takes the
 *       others' results. Three rounds are in flight: while one is sent, the one before is reduced
 *       and the one before that collected.
 *   <li>On memory that all have registered, or that all have used before: each rank reduces its
 *       chunk straight out of everybody's input into everybody's output.
 * </ul>
 *
 * <p>All wait in the same order on all ranks: the one that is furthest behind never waits for room,
 * because the others have taken all but a few of its items.
 */
final class Reductions {
  private static final long STAGED_PIECE = 16 << 10;

  private final int rank;
  private final int nRanks;
  private final Pipe[] pipes;
  private final Card mine = new Card();
  private final Card[] cards;
  private final long[] sources;
  private final long[] targets;
  private final Familiar familiar = new Familiar();
  private final PeerSegments[] segments;
  private final SharedSegment[] inUse;
  private int nInUse;

  // The call, while it runs.
  private HostReduction reduction;
  private HostCall call;
  private CollectiveCall what;
  private long from;
  private long to;
  private long abort;
  private boolean cardsToTake;

  Reductions(int rank, Pipe[] pipes, boolean[] sameProcess) {
    this.rank = rank;
    this.nRanks = pipes.length;
    this.pipes = pipes;
    this.cards = new Card[nRanks];
    for (int i = 0; i < nRanks; i++) {
      cards[i] = i == rank ? mine : new Card();
    }
    this.sources = new long[nRanks];
    this.targets = new long[nRanks];
    this.segments = new PeerSegments[nRanks];
    for (int i = 0; i < nRanks; i++) {
      segments[i] = new PeerSegments(i, sameProcess[i]);
    }
    this.inUse = new SharedSegment[2 * nRanks];
  }

  /**
   * Reduces the bytes from one place to another: of everything, or of each part of a
   * reduce-scatter.
   */
  void run(HostReduction with, HostCall newCall, long newFrom, long newTo, long abortAddress) {
    reduction = with;
    call = newCall;
    what = newCall.call();
    from = newFrom;
    to = newTo;
    abort = abortAddress;
    cardsToTake = false;
    if (newCall.way() == HostCall.Way.DIRECT && !showCards()) {
      return;
    }
    if (newCall.way() == HostCall.Way.DIRECT
        && (mine.inputId != Card.NONE || mine.input.isThere())) {
      if (!takeCards()) {
        return;
      }
      if (canReduceStraight()) {
        reduceStraight();
        return;
      }
    }
    if (newCall.way() == HostCall.Way.ONE_SHOT || what.collective() == Collective.REDUCE_SCATTER) {
      oneShot();
    } else {
      twoPhases();
    }
  }

  private boolean showCards() {
    call.describe(from, from, mine);
    call.show(from, from, familiar, mine);
    for (int i = 1; i < nRanks; i++) {
      Pipe pipe = pipes[(rank + i) % nRanks];
      if (!pipe.awaitRoom(abort)) {
        return false;
      }
      pipe.sendCard(mine);
    }
    cardsToTake = true;
    return true;
  }

  /** Takes the peers' cards, if there are any and they have not been taken yet. */
  private boolean takeCards() {
    for (int i = 1; i < nRanks && cardsToTake; i++) {
      int peer = (rank + i) % nRanks;
      if (!pipes[peer].awaitItem(abort)) {
        return false;
      }
      pipes[peer].readCard(cards[peer]);
      pipes[peer].take();
    }
    cardsToTake = false;
    return true;
  }

  /** The same on every rank, because all have the same cards. */
  private boolean canReduceStraight() {
    return allAreShown() || allAreRegistered();
  }

  private boolean allAreShown() {
    for (Card card : cards) {
      if (!card.input.isThere()
          || what.collective() == Collective.ALL_REDUCE && !card.output.isThere()) {
        return false;
      }
    }
    return true;
  }

  private boolean allAreRegistered() {
    for (Card card : cards) {
      boolean input = card.inputId == mine.inputId;
      boolean output =
          what.collective() != Collective.ALL_REDUCE
              || card.outputId == mine.outputId && card.outputId != Card.NONE;
      if (!input || !output) {
        return false;
      }
    }
    return mine.inputId != Card.NONE;
  }

  private boolean isRootsOutputReached() {
    if (mine.input.isThere()) {
      return cards[what.root()].output.isThere();
    }
    for (Card card : cards) {
      if (!card.reaches(cards[what.root()].outputId)) {
        return false;
      }
    }
    return true;
  }

  private void reduceStraight() {
    try {
      reduceFromAll();
    } finally {
      while (nInUse > 0) {
        inUse[--nInUse].release();
      }
    }
    Pipe.meet(pipes, rank, abort); // nobody's buffers are in use by others any more
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
      begin = Lines.begin(bytes, nRanks, rank);
      end = Lines.begin(bytes, nRanks, rank + 1);
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

  /** Where a rank's input is, so many bytes behind this strand's first. */
  private long input(int of, long at, long bytes) {
    Card card = cards[of];
    return of == rank
        ? call.input() + from + at
        : place(of, card.input, card.inputId, card.inputOffset, at, bytes);
  }

  private long output(int of, long at, long bytes) {
    Card card = cards[of];
    return of == rank
        ? call.output() + from + at
        : place(of, card.output, card.outputId, card.outputOffset, at, bytes);
  }

  private long place(int of, Shown shown, int id, long offset, long at, long bytes) {
    if (!shown.isThere()) {
      return call.registration(id).addressOn(of) + offset + at;
    }
    SharedSegment segment = segments[of].use(shown, at + bytes);
    inUse[nInUse++] = segment;
    return segment.address() + shown.offset() + at;
  }

  /** Lets go of what was mapped; behind the last call. */
  void close() {
    for (PeerSegments each : segments) {
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
    long pieces = (to - from + PAYLOAD - 1) / PAYLOAD;
    // A piece ahead, so that nobody waits for what the peer has not begun to copy.
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
    long at = from + piece * PAYLOAD;
    long length = Math.min(PAYLOAD, to - at);
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
    Pipe pipe = pipes[peer];
    if (!pipe.awaitRoom(abort)) {
      return false;
    }
    HostMemory.copy(pipe.payloadToSend(), source, length);
    pipe.send(length);
    return true;
  }

  private boolean reduceInput(long piece, boolean receives) {
    if (!takeCards()) {
      return false;
    }
    if (!receives) {
      return true;
    }
    long at = from + piece * PAYLOAD;
    if (!awaitSources(call.input() + what.sendOffset(rank) + at)) {
      return false;
    }
    targets[0] = call.output() + at;
    reduce(1, Math.min(PAYLOAD, to - at));
    takeAll();
    return true;
  }

  /** Waits for a piece of every peer. */
  private boolean awaitSources(long own) {
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (!pipes[peer].awaitItem(abort)) {
        return false;
      }
      sources[peer] = pipes[peer].payloadToTake();
    }
    sources[rank] = own;
    return true;
  }

  private void takeAll() {
    for (int i = 1; i < nRanks; i++) {
      pipes[(rank + i) % nRanks].take();
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

  /** Where a rank's piece of a round begins; that of the rank behind the last is its end. */
  private long begin(long round, int of) {
    long base = from + round * nRanks * STAGED_PIECE;
    return base + Lines.begin(Math.min(nRanks * STAGED_PIECE, to - base), nRanks, of);
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
    if (!takeCards()) {
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
        if (!pipes[peer].awaitRoom(abort)) {
          return false;
        }
        targets[nTargets++] = pipes[peer].payloadToSend();
      }
    }
    reduce(nTargets, length);
    takeAll();
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (toAll || peer == what.root()) {
        pipes[peer].send(length);
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
        if (!pipes[peer].awaitItem(abort)) {
          return false;
        }
        HostMemory.copy(call.output() + at, pipes[peer].payloadToTake(), length);
        pipes[peer].take();
      }
    }
    return true;
  }
}
