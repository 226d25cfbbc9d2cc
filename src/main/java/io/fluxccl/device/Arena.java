// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.UseCount;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * Allocates small pieces of memory from shared blocks, because the allocation of a block may be
 * slow. It creates a file and a mapping, or the driver waits for running kernels. Pieces are
 * allocated in address order. A block is freed as a whole, with its last piece, so late writes of a
 * slow peer can't reach a new piece. Each piece is a user of its block. Thread-safe.
 *
 * @param <B> the blocks
 */
@Experimental
public final class Arena<B extends UseCount> {
  /** The alignment of pieces: two cache lines. */
  static final int ALIGNMENT = 128;

  private final Lifecycle lifecycle;
  private final long blockLength;
  private final Supplier<B> newBlock;
  private final Predicate<B> reusable;

  // All guarded by this.
  private B current;
  private long used;

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
   * @param lifecycle the device's; its close releases the current block, whose pieces keep it
   * @param blockLength bytes of a block
   * @param newBlock creates a zeroed block with one user
   * @param reusable whether a block without pieces may be used again from its start; it keeps its
   *     earlier content
   */
  public Arena(Lifecycle lifecycle, long blockLength, Supplier<B> newBlock, Predicate<B> reusable) {
    this.lifecycle = lifecycle;
    this.blockLength = blockLength;
    this.newBlock = newBlock;
    this.reusable = reusable;
    lifecycle.own(this::releaseCurrent);
  }

  /** Allocates the first block, so that the first pieces need no allocation. */
  public synchronized void open() {
    if (current == null) {
      current = newBlock.get();
    }
  }

  /**
   * Allocates a piece.
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
    if (lifecycle.isClosed()) {
      releaseCurrent();
    }
    return piece;
  }

  private synchronized void releaseCurrent() {
    if (current != null) {
      current.release();
      current = null;
    }
    used = 0;
  }
}
