package io.fluxccl.collective.cuda;

/**
 * Slots of packets in a family's state: in two sets, for each phase, one for each rank.
 *
 * @param kind of the packets; all of them in an area
 * @param offset from the state's start
 * @param slots how many
 * @param slotBytes bytes of a slot, the packets' not the payload's
 */
record PacketArea(PacketKind kind, long offset, int slots, int slotBytes) {
  /** No packets. */
  static final PacketArea NONE = new PacketArea(PacketKind.LL8, 0, 0, 0);

  private static final int SETS = 2;

  /**
   * An area.
   *
   * @param offset where it begins
   * @param phases of the algorithm that are separate
   * @param nRanks how many ranks
   * @param bytes of payload that a slot holds
   */
  static PacketArea of(PacketKind kind, long offset, int phases, int nRanks, long bytes) {
    return new PacketArea(
        kind, offset, SETS * phases * nRanks, Math.toIntExact(kind.rowBytes(bytes)));
  }

  /** Whether a slot holds that much payload. */
  boolean holds(long bytes) {
    return kind.rowBytes(bytes) <= slotBytes;
  }

  /** Bytes of all slots. */
  long length() {
    return (long) slots * slotBytes;
  }

  /** Where it ends. */
  long end() {
    return offset + length();
  }
}
