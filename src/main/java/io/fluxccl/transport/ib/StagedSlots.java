package io.fluxccl.transport.ib;

/**
 * The pinned memory of one end of a staged connection: how it is laid out. Outbox and inbox have
 * the same slots, so that one RDMA write carries a slot from the one to the same place in the
 * other.
 *
 * <pre>
 *   16 slots of:  int64 kind   int64 memory id   int64 offset   int64 length, or the signal's value
 *                 32 bytes free   128 KiB payload
 *   inbox:   int64 number of what lies in it, plus 1, for each slot, written by the peer's device
 *            behind the slot
 *   outbox:  int64 how many slots the peer has placed, written by the peer's device
 *   both:    int64 how far the stream has come, 128 bytes behind that
 * </pre>
 */
final class StagedSlots {
  /** A power of two. */
  static final int COUNT = 16;

  static final int PAYLOAD_LENGTH = 128 << 10;
  static final int PAYLOAD = 64;
  static final int KIND = 0;
  static final int MEMORY = 8;
  static final int OFFSET = 16;
  static final int VALUE = 24;

  static final long DATA = 1;
  static final long UPDATE = 2;

  private static final int LENGTH = PAYLOAD + PAYLOAD_LENGTH;

  /** Of the outbox. */
  static final int CREDIT = COUNT * LENGTH;

  static final int PASSED = COUNT * LENGTH + COUNT * Long.BYTES + 128;
  static final int ALL = PASSED + 128;

  private StagedSlots() {}

  /** Where the slot of a number begins. */
  static int index(long number) {
    return ((int) number & COUNT - 1) * LENGTH;
  }

  /** Where the inbox says what lies in the slot of a number. */
  static int sequence(long number) {
    return COUNT * LENGTH + ((int) number & COUNT - 1) * Long.BYTES;
  }
}
