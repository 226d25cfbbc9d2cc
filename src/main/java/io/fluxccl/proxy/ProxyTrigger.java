// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

/**
 * The 128 bits that a kernel pushes and a {@link ProxyHandler} receives: two 64-bit words. All bits
 * of the first word and the low 63 bits of the second belong to the caller. Bit 63 of the second
 * word is the ring's commit bit.
 *
 * <p>The commit bit carries the parity of the lap that wrote the slot, {@code (lap & 1) ^ 1}. So a
 * slot itself shows whether it belongs to this lap or to the one before, for any payload. Slots are
 * never cleared. Memory starts zeroed, which is the parity that lap 0 does not write.
 */
public final class ProxyTrigger {
  /** The bit of the second word that belongs to the ring. */
  public static final long COMMIT_BIT = 1L << 63;

  /** The bits of the second word that belong to the caller. */
  public static final long SECOND_PAYLOAD_MASK = ~COMMIT_BIT;

  private ProxyTrigger() {}

  /**
   * Returns the second word as it is stored in the ring: the payload with the commit bit of its
   * lap.
   *
   * @param second the payload; its bit 63 is ignored
   * @param lap the lap: position / ring size
   * @return the word to store
   */
  public static long commit(long second, long lap) {
    return second & SECOND_PAYLOAD_MASK | commitBit(lap);
  }

  /**
   * Returns whether a second word read from the ring was written in the given lap, and not in the
   * one before.
   */
  public static boolean isCommitted(long stored, long lap) {
    return (stored & COMMIT_BIT) == commitBit(lap);
  }

  /** Returns the second word without the ring's commit bit. */
  public static long payload(long stored) {
    return stored & SECOND_PAYLOAD_MASK;
  }

  private static long commitBit(long lap) {
    return ((lap & 1) ^ 1) << 63;
  }
}
