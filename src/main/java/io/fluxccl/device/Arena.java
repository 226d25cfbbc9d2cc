// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.UseCount;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * Small pieces of memory that share blocks, because a block costs a call that may be slow: a file
 * and a mapping, or a driver that waits for running kernels. Pieces are handed out one after the
 * other. A block goes away as a whole, with its last piece, so that what a slow peer still writes
 * to a piece can't hit another. Each piece is a user of its block. Thread-safe.
 *
 * @param <B> the blocks
 */
@Experimental
public final class Arena<B extends UseCount> {
  /** How pieces are aligned: two cache lines. */
  static final int ALIGNMENT = 128;

  private final long blockLength;
  private final Supplier<B> newBlock;
  private final Predicate<B> reusable;

  // All guarded by this.
  private B current;
  private long used;
  private boolean closed;

  /**
   * A part of a block.
   *
   * @param block retained for this piece
   * @param offset of the piece in it, in bytes
   */
  public record Piece<B>(B block, long offset) {}

  /**
   * Creates an arena without a block.
   *
   * @param blockLength bytes of a block
   * @param newBlock makes one of zeros, with one user
   * @param reusable whether a block that has no pieces any more may be handed out from its
   *     beginning again, with what was written to it before
   */
  public Arena(long blockLength, Supplier<B> newBlock, Predicate<B> reusable) {
    this.blockLength = blockLength;
    this.newBlock = newBlock;
    this.reusable = reusable;
  }

  /** Makes the first block, so that the first pieces need none. */
  public synchronized void open() {
    if (current == null) {
      current = newBlock.get();
    }
  }

  /**
   * Hands out a piece.
   *
   * @param size bytes, at most the length of a block
   */
  public synchronized Piece<B> allocate(long size) {
    long length = size + ALIGNMENT - 1 & -ALIGNMENT;
    if (current != null && current.users() == 1 && reusable.test(current)) {
      used = 0; // only this arena uses it: no piece, no registration, no peer
    }
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
  public synchronized void close() {
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
