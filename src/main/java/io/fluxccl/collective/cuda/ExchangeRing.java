package io.fluxccl.collective.cuda;

/**
 * The rings of one kind of packets in a state: slots for each ordered pair of ranks, and the
 * counters and words that go with them. Twin of {@code exchange_packets.cuh}, which tells the
 * layout and the protocol.
 *
 * @param offset where it begins in the state, a multiple of 128
 * @param nRanks how many ranks
 * @param slots of a ring, a power of 2
 * @param rowPayload bytes of payload that a warp moves at once
 * @param maxRows how many times that fits into a slot
 * @param slotSize bytes of a slot
 */
record ExchangeRing(long offset, int nRanks, int slots, int rowPayload, int maxRows, int slotSize) {
  /** {@code sizeof(RingCounters)}. */
  private static final int COUNTERS_LENGTH = 1024;

  private static final int NOTHING_OFFSET = 448;

  private static final int LL8_PAYLOAD = 128;
  private static final int LL8_SLOT = 256;
  private static final int LL8_SLOTS = 256;
  private static final int LL128_PAYLOAD = 480;
  private static final int LL128_ROWS = 4;
  private static final int LL128_SLOT = 2048;

  /** All LL128 slots of a rank; what is in flight to it never needs more. */
  private static final int LL128_SLOTS = 8192;

  private static final int MIN_SLOTS = 512;

  /** Rings of LL8 packets. */
  static ExchangeRing ll8(long offset, int nRanks) {
    return new ExchangeRing(offset, nRanks, LL8_SLOTS, LL8_PAYLOAD, 1, LL8_SLOT);
  }

  /** Rings of LL128 packets; for n ranks each has an n-th of all slots. */
  static ExchangeRing ll128(long offset, int nRanks) {
    int slots = Math.max(MIN_SLOTS, Integer.highestOneBit(LL128_SLOTS / nRanks));
    return new ExchangeRing(offset, nRanks, slots, LL128_PAYLOAD, LL128_ROWS, LL128_SLOT);
  }

  /** Bytes in the state. */
  long length() {
    return COUNTERS_LENGTH + (long) nRanks * slots * (Long.BYTES + slotSize);
  }

  /** Where a rank finds, or puts, the bytes of a barrier. */
  long nothingOffset(int rank) {
    return offset + NOTHING_OFFSET + (long) rank * Integer.BYTES;
  }

  /** How many rows a slot of a message has: one while that takes no more than half of the ring. */
  int rows(long bytes) {
    return bytes <= slots / 2L * rowPayload ? 1 : maxRows;
  }

  /** How many slots a message takes, one after the other. */
  int units(long bytes) {
    long unit = (long) rows(bytes) * rowPayload;
    return Math.toIntExact((bytes + unit - 1) / unit);
  }

  /** The longest message of which two fit into the ring, so that its sender never waits. */
  long eagerBytes() {
    return slots / 2L * maxRows * rowPayload;
  }
}
