package io.fluxccl.proxy;

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
 * Control words are two cache lines apart, so that neither they nor the lines that a prefetcher
 * pulls in with them are shared.
 *
 * <p>A position counts pushes from 0 and only grows. Its slot is {@code position & (size - 1)}, its
 * lap {@code position / size}; {@link ProxyTrigger} says how a slot marks its lap.
 */
public final class FifoDescriptor {
  /** Triggers in a ring unless asked otherwise. */
  public static final int DEFAULT_SIZE = 512;

  /** The largest ring, in triggers. */
  public static final int MAX_SIZE = 1 << 24;

  /** Bytes of one trigger. */
  public static final int TRIGGER_LENGTH = 16;

  /** Binary logarithm of {@link #TRIGGER_LENGTH}. */
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

  /** Bytes of the device's memory. */
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

  /** Bytes of the device handle. */
  public static final int HANDLE_LENGTH = 48;

  private FifoDescriptor() {}

  /**
   * Refuses a size that a ring cannot have.
   *
   * @param size triggers
   * @return {@code size}
   * @throws InvalidUsage if it is no power of two, or not 1 to {@link #MAX_SIZE}
   */
  public static int checkSize(int size) {
    if (size < 1 || size > MAX_SIZE || Integer.bitCount(size) != 1) {
      throw new InvalidUsage(
          "fifo size=" + size + " is no power of two from 1 to " + MAX_SIZE + "; try 512");
    }
    return size;
  }

  /** Bytes of pinned memory for a ring of the given number of triggers. */
  public static int pinnedLength(int size) {
    return TRIGGERS_OFFSET + (checkSize(size) << TRIGGER_SHIFT);
  }

  /** Byte offset, from the first trigger, of the slot of a position. */
  static int slotOffset(long position, int size) {
    return (int) (position & (size - 1)) << TRIGGER_SHIFT;
  }
}
