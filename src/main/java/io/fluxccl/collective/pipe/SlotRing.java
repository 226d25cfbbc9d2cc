// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

/**
 * The memory layout of one direction of a {@link MappedPipe}. It lies in the receiver's memory; the
 * sender writes it. An empty ring is all zeros.
 *
 * <pre>
 *   ring    [0, 64)     number of messages that this rank's peer has taken from the other direction
 *           [64, ...)   slots
 *   slot    [0, 8)      low 32 bits: number of the message in the slot, from 1; high 32 bits:
 *                       signature of the call that the message is of; stored last, with release
 *           [8, 16)     a word for the receiver
 *           [16, 24)    number of messages that the sender has taken from the other direction
 *           [24, 64)    free for the sender's own header
 *           [64, ...)   payload
 * </pre>
 *
 * @param payloadBytes the most bytes of a message, a multiple of the cache line
 */
public record SlotRing(int payloadBytes) {
  /** Slots of a ring, a power of two: a rank that is briefly late delays no other. */
  public static final int SLOTS = 16;

  /** Offset of a slot's free header bytes. */
  public static final int HEADER_OFFSET = 24;

  /** Offset of a slot's payload. */
  public static final int PAYLOAD_OFFSET = CacheLines.LENGTH;

  static final int NUMBER_OFFSET = 0;
  static final int WORD_OFFSET = 8;
  static final int TAKEN_OFFSET = 16;

  /** The least payload: two references to memory, or the pieces of a message. */
  private static final int LEAST_PAYLOAD = 3 * CacheLines.LENGTH;

  /**
   * Returns a ring of the largest payload that fits, and not less than 192 bytes.
   *
   * @param bytes the bytes of the ring
   * @param most the largest payload, a multiple of the cache line
   */
  public static SlotRing within(long bytes, int most) {
    long slot = (bytes - CacheLines.LENGTH) / SLOTS & -CacheLines.LENGTH;
    return new SlotRing((int) Math.max(LEAST_PAYLOAD, Math.min(most, slot - PAYLOAD_OFFSET)));
  }

  /** Returns the bytes of a ring. */
  public long bytes() {
    return CacheLines.LENGTH + (long) SLOTS * slotBytes();
  }

  /** Returns the bytes from one slot to the next. */
  int slotBytes() {
    return PAYLOAD_OFFSET + payloadBytes;
  }
}
