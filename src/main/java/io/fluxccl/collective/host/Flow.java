package io.fluxccl.collective.host;

import static io.fluxccl.collective.host.PipeDescriptor.PAYLOAD;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SharedSegment;

/**
 * What goes to a peer and comes from it in one exchange, as far as it has got. Each way goes
 * through the pipe, or is copied straight: the first bytes by the sender, the rest by the receiver,
 * as far as each can reach the other's memory: what is registered, and what was in such an exchange
 * before. The cards, which a large exchange begins with, say so. Steps never wait.
 */
final class Flow {
  /** From so many bytes on, either way, ranks show each other their cards. */
  static final long CARD_LIMIT = 8 << 10;

  private static final long SMALL_PIECE = 8 << 10;
  private static final int SWAP_LENGTH = 16 << 10;

  private final int rank;
  private final int peer;
  private final Pipe pipe;
  private final Card mine = new Card();
  private final Card theirs = new Card();
  private final Familiar familiar = new Familiar();
  private final PeerSegments segments;

  private HostCall call;
  private boolean swaps;
  private long source;
  private long target;
  private long toSend;
  private long sent;
  private long toReceive;
  private long received;
  private long pieceToSend;
  private long pieceToReceive;

  // What remains to be done besides; the order of the fields is that of the items.
  private boolean cardToSend;
  private boolean cardToTake;
  private boolean decided;
  private boolean direct;
  private boolean doneToSend;
  private boolean doneToTake;

  Flow(int rank, Pipe pipe, boolean sameProcess) {
    this.rank = rank;
    this.peer = pipe.peer();
    this.pipe = pipe;
    this.segments = new PeerSegments(peer, sameProcess);
  }

  int peer() {
    return peer;
  }

  /**
   * Begins a call.
   *
   * @param newCall the call
   * @param strand this strand's part of it
   * @param strands of how many
   */
  void begin(HostCall newCall, int strand, int strands) {
    call = newCall;
    CollectiveCall what = newCall.call();
    long allToSend = what.sendBytes(rank, peer);
    long allToReceive = what.receiveBytes(rank, peer);
    int sendParts = Strand.strandsFor(allToSend, strands);
    int receiveParts = Strand.strandsFor(allToReceive, strands);
    swaps = newCall.swaps();
    sent = strand < sendParts ? Lines.begin(allToSend, sendParts, strand) : allToSend;
    toSend =
        (strand < sendParts ? Lines.begin(allToSend, sendParts, strand + 1) : allToSend) - sent;
    received =
        strand < receiveParts ? Lines.begin(allToReceive, receiveParts, strand) : allToReceive;
    toReceive =
        (strand < receiveParts ? Lines.begin(allToReceive, receiveParts, strand + 1) : allToReceive)
            - received;
    long sourceAt = sent;
    long targetAt = received;
    source = newCall.input() + what.sendOffset(peer) + sourceAt;
    target = newCall.output() + what.receiveOffset(peer) + targetAt;
    sent = 0;
    received = 0;
    pieceToSend = piece(toSend);
    pieceToReceive = piece(toReceive);
    mine.sent = allToSend;
    mine.expected = allToReceive;
    boolean large =
        newCall.way() == HostCall.Way.DIRECT && Math.max(toSend, toReceive) >= CARD_LIMIT;
    cardToSend = large;
    cardToTake = large;
    direct = false;
    doneToSend = false;
    doneToTake = false;
    decided = true;
    if (large) {
      long inputAt = what.sendOffset(peer) + sourceAt;
      long outputAt = what.receiveOffset(peer) + targetAt;
      newCall.describe(inputAt, outputAt, mine);
      newCall.show(inputAt, outputAt, familiar, mine);
      decided = false;
    }
  }

  /** Into what a message is cut; the same at both ends. */
  private static long piece(long bytes) {
    return Math.min(PAYLOAD, Math.max(SMALL_PIECE, Lines.roundUp(bytes / 4)));
  }

  /** Whether nothing is left to do. */
  boolean isDone() {
    return sent == toSend
        && received == toReceive
        && !cardToSend
        && !cardToTake
        && !doneToSend
        && !doneToTake;
  }

  /**
   * Does what can be done now; false if nothing could.
   *
   * @throws InvalidUsage if the peer sends or expects another number of bytes than this rank does;
   *     none of them has been copied then
   */
  boolean step() {
    boolean moved = false;
    if (cardToSend && pipe.hasRoom()) {
      pipe.sendCard(mine);
      cardToSend = false;
      moved = true;
    }
    if (cardToTake && pipe.hasItem()) {
      pipe.readCard(theirs);
      if (!theirs.agreesWith(mine)) {
        throw mismatch();
      }
      pipe.take();
      cardToTake = false;
      moved = true;
      if (!decided) {
        decided = true;
        copyStraight();
      }
    }
    if (sent < toSend && decided && !cardToSend && pipe.hasRoom()) {
      long length = Math.min(pieceToSend, toSend - sent);
      HostMemory.copy(pipe.payloadToSend(), source + sent, length);
      pipe.send(mine.sent);
      sent += length;
      moved = true;
    }
    if (received < toReceive && !cardToTake && pipe.hasItem()) {
      moved |= receive();
    }
    if (doneToSend && sent == toSend && pipe.hasRoom()) {
      pipe.send(0);
      doneToSend = false;
      moved = true;
    }
    if (doneToTake && received == toReceive && pipe.hasItem()) {
      pipe.take();
      doneToTake = false;
      moved = true;
    }
    return moved;
  }

  private boolean receive() {
    // How much fits is for this rank to say: it is its memory.
    if (pipe.messageToTake() != mine.expected) {
      throw mismatch();
    }
    long length = Math.min(pieceToReceive, toReceive - received);
    // In place, what arrives may only overwrite what was sent.
    if (swaps && received + length > sent) {
      return false;
    }
    HostMemory.copy(target + received, pipe.payloadToTake(), length);
    pipe.take();
    received += length;
    return true;
  }

  /** What the item to take shows: each of the two gives sizes that the other one doesn't. */
  private InvalidUsage mismatch() {
    pipe.readCard(theirs);
    String sizes =
        theirs.sent < 0
            ? ~theirs.sent + " bytes"
            : theirs.sent + " bytes and expects " + theirs.expected + " bytes";
    return new InvalidUsage(
        call.call()
            + " on rank "
            + rank
            + ": rank "
            + peer
            + " sends "
            + sizes
            + ", rank "
            + rank
            + " expects "
            + mine.expected
            + " bytes and sends "
            + mine.sent
            + " bytes; what one sends the other must expect");
  }

  /** Copies whatever this side can and is to copy, and takes that off what goes by the pipe. */
  private void copyStraight() {
    if (mine.isInPlace() || theirs.isInPlace()) {
      swap();
      return;
    }
    if (toSend > 0) {
      boolean pull = theirs.reaches(mine.inputId) || mine.input.isThere();
      boolean push = mine.reaches(theirs.outputId) || theirs.output.isThere();
      if (pull || push) {
        long pushed = pushed(toSend, pull, push, rank, peer);
        push(pushed);
        sent = toSend;
        direct = true;
      }
    }
    if (toReceive > 0) {
      boolean pull = mine.reaches(theirs.inputId) || theirs.input.isThere();
      boolean push = theirs.reaches(mine.outputId) || mine.output.isThere();
      if (pull || push) {
        long pushed = pushed(toReceive, pull, push, peer, rank);
        pull(pushed);
        received = toReceive;
        direct = true;
      }
    }
    doneToSend = direct;
    doneToTake = direct;
  }

  /** Copies the first bytes to the peer's output. */
  private void push(long bytes) {
    if (bytes == 0) {
      return;
    }
    if (theirs.output.isThere()) {
      SharedSegment segment = segments.use(theirs.output, toSend);
      HostMemory.copy(segment.address() + theirs.output.offset(), source, bytes);
      segment.release();
    } else {
      HostMemory.copy(
          call.registration(theirs.outputId).addressOn(peer) + theirs.outputOffset, source, bytes);
    }
  }

  /** Copies what is behind those bytes from the peer's input. */
  private void pull(long from) {
    long bytes = toReceive - from;
    if (bytes == 0) {
      return;
    }
    if (theirs.input.isThere()) {
      SharedSegment segment = segments.use(theirs.input, toReceive);
      HostMemory.copy(target + from, segment.address() + theirs.input.offset() + from, bytes);
      segment.release();
    } else {
      HostMemory.copy(target + from, theirInput() + from, bytes);
    }
  }

  private long theirInput() {
    return call.registration(theirs.inputId).addressOn(peer) + theirs.inputOffset;
  }

  /** Lets go of what was mapped; behind the last call. */
  void close() {
    segments.close();
  }

  /** How many bytes the sender copies: of what both could, so many that all ranks work alike. */
  private long pushed(long bytes, boolean pull, boolean push, int sender, int receiver) {
    if (!pull || !push) {
      return push ? bytes : 0;
    }
    CollectiveCall what = call.call();
    return switch (what.collective()) {
      case BROADCAST, SCATTER -> Lines.begin(bytes, call.nRanks(), 1);
      case GATHER -> bytes - Lines.begin(bytes, call.nRanks(), 1);
      case SEND_RECEIVE -> Lines.begin(bytes, 2, 1);
      default -> 0;
    };
  }

  /** Exchanges two parts that both lie where the other is to go: half of it each rank. */
  private void swap() {
    boolean can =
        mine.isInPlace()
            && theirs.isInPlace()
            && mine.reaches(theirs.inputId)
            && theirs.reaches(mine.inputId);
    if (!can) {
      return; // through the pipe, in step
    }
    long half = Lines.begin(toSend, 2, 1);
    long from = rank < peer ? 0 : half;
    long to = rank < peer ? half : toSend;
    long here = source;
    long there = theirInput();
    // The next slot is this rank's to write, and not used otherwise now.
    long scratch = pipe.payloadToSend();
    for (long at = from; at < to; at += SWAP_LENGTH) {
      long length = Math.min(SWAP_LENGTH, to - at);
      HostMemory.copy(scratch, here + at, length);
      HostMemory.copy(here + at, there + at, length);
      HostMemory.copy(there + at, scratch, length);
    }
    sent = toSend;
    received = toReceive;
    doneToSend = true;
    doneToTake = true;
  }
}
