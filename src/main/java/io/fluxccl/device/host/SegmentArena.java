package io.fluxccl.device.host;

/**
 * Small allocations share segments, so that each does not cost a file and a mapping: handed out one
 * after the other, and begun anew once all of a segment's pieces are released and no other process
 * was ever given its name: one that has mapped it may still write to a piece that is closed here.
 * Each piece is a user of its segment. Thread-safe.
 */
final class SegmentArena {
  /** From this size on, a buffer gets a segment of its own. */
  static final int LARGE = 64 * 1024;

  private static final int SEGMENT_LENGTH = 1 << 20;
  private static final int ALIGNMENT = 128;

  // Both guarded by this.
  private SharedSegment current;
  private int used;

  /** A part of a segment, which has been retained for it. */
  record Piece(SharedSegment segment, long offset) {}

  Piece allocate(int size) {
    Piece piece = take((size + ALIGNMENT - 1) & -ALIGNMENT);
    HostMemory.fill(piece.segment().address() + piece.offset(), size, (byte) 0);
    return piece;
  }

  private synchronized Piece take(int length) {
    if (current != null && current.users() == 1 && !current.isNamed()) {
      used = 0; // only this arena uses it: no piece, no registration, no peer
    }
    if (current == null || used + length > SEGMENT_LENGTH) {
      SharedSegment next = SharedSegment.create(SEGMENT_LENGTH);
      close();
      current = next;
    }
    current.retain();
    Piece piece = new Piece(current, used);
    used += length;
    return piece;
  }

  /** Releases the current segment; its pieces keep it. */
  synchronized void close() {
    if (current != null) {
      current.release();
      current = null;
      used = 0;
    }
  }
}
