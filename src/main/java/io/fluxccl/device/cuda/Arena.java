package io.fluxccl.device.cuda;

import io.fluxccl.concurrent.UseCount;
import java.util.function.Supplier;

/**
 * Small pieces of memory share blocks, because the driver may wait for running kernels at every
 * block that it gives or takes. Pieces are handed out one after the other and never twice: a block
 * goes away as a whole, with its last piece, so that what a slow peer still writes to a piece can't
 * hit another. Each piece is a user of its block. Thread-safe.
 *
 * @param <B> the blocks
 */
final class Arena<B extends UseCount> {
  /** How pieces are aligned: two cache lines. */
  static final int ALIGNMENT = 128;

  private final long blockLength;
  private final Supplier<B> newBlock;

  // All guarded by this.
  private B current;
  private long used;
  private boolean closed;

  /** A part of a block, which has been retained for it. */
  record Piece<B>(B block, long offset) {}

  /**
   * @param blockLength bytes of a block
   * @param newBlock makes one of zeros, with one user
   */
  Arena(long blockLength, Supplier<B> newBlock) {
    this.blockLength = blockLength;
    this.newBlock = newBlock;
  }

  /** Makes the first block, so that the first pieces need no call of the driver. */
  synchronized void open() {
    if (current == null) {
      current = newBlock.get();
    }
  }

  /** A piece of zeros, of at most the length of a block. */
  synchronized Piece<B> allocate(long size) {
    long length = size + ALIGNMENT - 1 & -ALIGNMENT;
    if (current == null || length > blockLength - used) {
      B next = newBlock.get();
      releaseCurrent();
      current = next;
    }
    current.retain();
    Piece<B> piece = new Piece<>(current, used);
    used += length;
    if (closed) {
      releaseCurrent();
    }
    return piece;
  }

  /** Releases the current block; its pieces keep it. */
  synchronized void close() {
    closed = true;
    releaseCurrent();
  }

  private void releaseCurrent() {
    if (current != null) {
      current.release();
      current = null;
    }
    used = 0;
  }
}
