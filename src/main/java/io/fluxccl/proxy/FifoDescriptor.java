// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;

/**
 * The layout of a {@link Fifo} in memory, the same for the host and for kernels. Little-endian.
 *
 * <pre>
 *   pinned memory of the host
 *     offset   0  int64  tail: how many triggers have been handled; the host writes, all read
 *     offset 128  16 bytes a trigger, {@code size} of them: first word, second word
 *
 *   memory of the device, which the host only zeroes
 *     offset   0  int64  head: the next position to be pushed; kernels add to it atomically
 *     offset 128  int64  tail cache: a tail that some kernel has read, never ahead of the real one
 *
 *   device handle, what a kernel is given
 *     offset   0  int64  address of the first trigger
 *     offset   8  int64  address of head
 *     offset  16  int64  address of tail
 *     offset  24  int64  address of the tail cache
 *     offset  32  int64  address of the abort word
 *     offset  40  int32  size: triggers in the ring, a power of two
 *     offset  44  int32  padding, 0
 * </pre>
 *
 * Control words are two cache lines apart. So two control words share neither a cache line nor the
 * pair of lines that a prefetcher loads together.
 *
 * <p>A position counts pushes from 0 and only grows. Its slot is {@code position & (size - 1)}, and
 * its lap is {@code position / size}; {@link ProxyTrigger} describes how a slot marks its lap.
 */
@Experimental
public final class FifoDescriptor {
  /** The default number of triggers in a ring. */
  public static final int DEFAULT_SIZE = 512;

  /** The largest ring, in triggers. */
  public static final int MAX_SIZE = 1 << 24;

  /** The length of one trigger in bytes. */
  public static final int TRIGGER_LENGTH = 16;

  /** The binary logarithm of {@link #TRIGGER_LENGTH}. */
  public static final int TRIGGER_SHIFT = 4;

  /** Byte offset of the first word in a trigger. */
  public static final int FIRST_OFFSET = 0;

  /** Byte offset of the second word, which commits, in a trigger. */
  public static final int SECOND_OFFSET = 8;

  /** Byte offset of the tail in the pinned memory. */
  public static final int TAIL_OFFSET = 0;

  /** Byte offset of the first trigger in the pinned memory. */
  public static final int TRIGGERS_OFFSET = 128;

  /** Byte offset of the head in the device's memory. */
  public static final int HEAD_OFFSET = 0;

  /** Byte offset of the tail cache in the device's memory. */
  public static final int TAIL_CACHE_OFFSET = 128;

  /** The length of the device's memory in bytes. */
  public static final int DEVICE_LENGTH = 256;

  /** Byte offset of the triggers' address in the device handle. */
  public static final int HANDLE_TRIGGERS_OFFSET = 0;

  /** Byte offset of the head's address in the device handle. */
  public static final int HANDLE_HEAD_OFFSET = 8;

  /** Byte offset of the tail's address in the device handle. */
  public static final int HANDLE_TAIL_OFFSET = 16;

  /** Byte offset of the tail cache's address in the device handle. */
  public static final int HANDLE_TAIL_CACHE_OFFSET = 24;

  /** Byte offset of the abort word's address in the device handle. */
  public static final int HANDLE_ABORT_OFFSET = 32;

  /** Byte offset of the size in the device handle. */
  public static final int HANDLE_SIZE_OFFSET = 40;

  /** The length of the device handle in bytes. */
  public static final int HANDLE_LENGTH = 48;

  private FifoDescriptor() {}

  /**
   * Checks that a size is a possible size of a ring.
   *
   * @param size the number of triggers
   * @return {@code size}
   * @throws InvalidUsage if it is not a power of two from 1 to {@link #MAX_SIZE}
   */
  public static int checkSize(int size) {
    if (size < 1 || size > MAX_SIZE || Integer.bitCount(size) != 1) {
      throw new InvalidUsage(
          "fifo size=" + size + " is no power of two from 1 to " + MAX_SIZE + "; try 512");
    }
    return size;
  }

  /**
   * Returns the length in bytes of the pinned memory for a ring of the given number of triggers.
   */
  public static int pinnedLength(int size) {
    return TRIGGERS_OFFSET + (checkSize(size) << TRIGGER_SHIFT);
  }

  /** Returns the byte offset of a position's slot from the first trigger. */
  static int slotOffset(long position, int size) {
    return (int) (position & (size - 1)) << TRIGGER_SHIFT;
  }
}
