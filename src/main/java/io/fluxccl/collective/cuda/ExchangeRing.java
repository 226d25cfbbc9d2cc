// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

/**
 * The rings of one kind of packets in a state: slots for each ordered pair of ranks, with their
 * counters and words. The twin of {@code exchange_ring.cuh}; {@code exchange_packets.cuh} defines
 * layout and protocol.
 *
 * @param offset where it begins in the state, a multiple of 128
 * @param nRanks number of ranks
 * @param slots slots of a ring, a power of 2
 * @param rowPayload bytes of payload that a warp moves at once
 * @param maxRows number of rows that fit into a slot
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

  /** All LL128 slots of a rank; data in flight to it never needs more. */
  private static final int LL128_SLOTS = 8192;

  private static final int MIN_SLOTS = 512;

  /** Returns rings of LL8 packets. */
  static ExchangeRing ll8(long offset, int nRanks) {
    return new ExchangeRing(offset, nRanks, LL8_SLOTS, LL8_PAYLOAD, 1, LL8_SLOT);
  }

  /** Returns rings of LL128 packets, which share all slots of a rank. */
  static ExchangeRing ll128(long offset, int nRanks) {
    int slots = Math.max(MIN_SLOTS, Integer.highestOneBit(LL128_SLOTS / nRanks));
    return new ExchangeRing(offset, nRanks, slots, LL128_PAYLOAD, LL128_ROWS, LL128_SLOT);
  }

  /** Returns the bytes in the state. */
  long length() {
    return COUNTERS_LENGTH + (long) nRanks * slots * (Long.BYTES + slotSize);
  }

  /** Returns where the rings end in the state. */
  long end() {
    return offset + length();
  }

  /** Returns the offset of the bytes that a rank exchanges in a barrier. */
  long nothingOffset(int rank) {
    return offset + NOTHING_OFFSET + (long) rank * Integer.BYTES;
  }

  /** Returns the offset in a state of the slots to which a rank sends. */
  long slotsOffset(int sender) {
    return offset
        + COUNTERS_LENGTH
        + (long) nRanks * slots * Long.BYTES
        + (long) sender * slots * slotSize;
  }

  /** Returns the bytes that a lane moves at once if addresses and sizes are multiples of them. */
  int unit() {
    return maxRows == 1 ? Integer.BYTES : Long.BYTES;
  }

  /** Returns the rows in a slot of a message: one while the message fits into half of the ring. */
  int rows(long bytes) {
    return bytes <= slots / 2L * rowPayload ? 1 : maxRows;
  }

  /** Returns how many slots a message takes. */
  int units(long bytes) {
    long unit = (long) rows(bytes) * rowPayload;
    return Math.toIntExact((bytes + unit - 1) / unit);
  }

  /** Returns whether a message takes at most half of the ring, one row a slot. */
  boolean isShort(long bytes) {
    return rows(bytes) == 1 && units(bytes) <= slots / 2;
  }

  /** Returns the longest message of which two fit into the ring: its sender never waits. */
  long eagerBytes() {
    return slots / 2L * maxRows * rowPayload;
  }
}
