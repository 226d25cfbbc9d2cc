package io.fluxccl.collective.channel;

import io.fluxccl.proxy.ChannelTrigger;

/**
 * How a rank's staging memory is cut: for each lane and each other rank a pipe's inbox, and behind
 * all inboxes as many outboxes; a box is a ring of slots. The same on every rank.
 *
 * @param nRanks how many ranks
 * @param lanes that work side by side, each with pipes of its own
 * @param slotBytes bytes of a slot, a power of two
 */
record PipeLayout(int nRanks, int lanes, int slotBytes) {
  /** Slots of a box, a power of two. */
  static final int SLOTS = 16;

  /** A credit stands for so many emptied slots. */
  static final int SLOTS_PER_CREDIT = 8;

  /**
   * How many steps a rank's receiving is behind its sending. In each step it sends two pieces to a
   * rank at most, so no more than 2 x (DEPTH + 1) are on their way, and those slots may be had
   * without the credit for the latest: that must not be more than SLOTS - SLOTS_PER_CREDIT + 1, or
   * ranks would wait for each other in a circle.
   */
  static final int DEPTH = 3;

  /** The same where no more than one piece goes to a rank in a step. */
  static final int SINGLE_DEPTH = 8;

  /** Pieces of a part that go around a ring together: no more than may be without a credit. */
  static final int RING_PIECES = 4;

  /** Bytes of all inboxes of a rank, about, and of all outboxes. */
  private static final long BUDGET = 64 << 20;

  private static final int MAX_SLOT = 128 << 10;
  private static final int MIN_SLOT = 4 << 10;

  /** A pair's bytes are shared out to lanes only in parts of at least so many bytes. */
  private static final int LEAST_SHARE = 32 << 10;

  private static final int LEAST_PIECE = 16 << 10;
  private static final int PIECES = 8;
  private static final long LINE = 64;

  /** For so many ranks, and lanes at most. */
  static PipeLayout of(int nRanks, int mostLanes) {
    // Two semaphores a pipe, all in one proxy service.
    int lanes = Math.max(1, Math.min(mostLanes, ChannelTrigger.MAX_IDS / 2 / (nRanks - 1)));
    long share = BUDGET / SLOTS / lanes / (nRanks - 1);
    int slot = MAX_SLOT;
    while (slot > MIN_SLOT && slot > share) {
      slot /= 2;
    }
    return new PipeLayout(nRanks, lanes, slot);
  }

  /** How many pipes a rank has. */
  int pipes() {
    return lanes * (nRanks - 1);
  }

  /** Of a rank's pipe to another, which has none to itself. */
  int index(int lane, int rank, int peer) {
    return lane * (nRanks - 1) + (peer < rank ? peer : peer - 1);
  }

  long boxBytes() {
    return (long) SLOTS * slotBytes;
  }

  long inboxOffset(int lane, int rank, int peer) {
    return index(lane, rank, peer) * boxBytes();
  }

  long outboxOffset(int lane, int rank, int peer) {
    return (pipes() + index(lane, rank, peer)) * boxBytes();
  }

  /** Bytes of a rank's memory. */
  long bytes() {
    return 2 * pipes() * boxBytes();
  }

  /** How many lanes share a pair's bytes. */
  int lanesOf(long bytes) {
    return (int) Math.max(1, Math.min(lanes, bytes / LEAST_SHARE));
  }

  private long share(long bytes) {
    int sharing = lanesOf(bytes);
    return roundUp((bytes + sharing - 1) / sharing);
  }

  /** Where a lane's share of a pair's bytes begins. */
  long begin(long bytes, int lane) {
    return Math.min(bytes, share(bytes) * lane);
  }

  /** Where it ends. */
  long end(long bytes, int lane) {
    return Math.min(bytes, share(bytes) * (lane + 1));
  }

  /** The bytes of each piece of a share but the last, which may be shorter. */
  long piece(long shareBytes) {
    return Math.min(slotBytes, Math.max(LEAST_PIECE, roundUp((shareBytes + PIECES - 1) / PIECES)));
  }

  /** The bytes of a piece that goes around a ring. */
  long ringPiece(long shareBytes) {
    return Math.max(
        LINE, Math.min(slotBytes, roundUp((shareBytes + RING_PIECES - 1) / RING_PIECES)));
  }

  static long roundUp(long bytes) {
    return (bytes + LINE - 1) & -LINE;
  }
}
