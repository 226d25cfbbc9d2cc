// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import io.fluxccl.FluxCclException;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionEnd;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection to a rank whose memory is mapped in this process. A write is a copy between two
 * local addresses; a signal is a store ordered after earlier copies.
 */
public abstract class MappedConnection extends ConnectionEnd {
  private final MappedContext context;

  /**
   * Creates an open connection.
   *
   * @param context the context that owns it
   * @param remoteRank the rank of the other end
   * @param tag its tag
   */
  protected MappedConnection(MappedContext context, int remoteRank, int tag) {
    super(context.transport(), context.environment().rank(), remoteRank, tag);
    this.context = context;
  }

  /**
   * Copies, or enqueues a copy of, one byte or more.
   *
   * @param target address of the first byte to write
   * @param source address of the first byte to read
   * @param size bytes
   */
  protected abstract void copy(long target, long source, long size);

  /**
   * Sets a counter and stores its value, ordered after everything posted before.
   *
   * @param target address of the word, a multiple of 8
   */
  protected abstract void signal(long target, AtomicLong counter, long value);

  /** Fails all flushes that wait on this connection. Called once, when it fails or is closed. */
  protected void onFailure(FluxCclException reason) {}

  /**
   * Frees the connection's resources, and calls {@link #freed()} once no thread uses them.
   * Idempotent.
   */
  protected void free() {
    freed();
  }

  @Override
  public final Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    checkWorking();
    MappedMemory to = handleOf("target", target, remoteRank(), context, MappedMemory.class);
    MappedMemory from = handleOf("source", source, rank(), context, MappedMemory.class);
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    enter("target", to, target);
    try {
      enter("source", from, source);
      try {
        if (size > 0) {
          copy(to.address() + targetOffset, from.address() + sourceOffset, size);
        }
      } finally {
        from.release();
      }
    } finally {
      to.release();
    }
    return this;
  }

  @Override
  public final Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    checkWorking();
    MappedMemory to = handleOf("target", target, remoteRank(), context, MappedMemory.class);
    target.checkRange("target", targetOffset, Long.BYTES);
    long address = to.address() + targetOffset;
    checkAlignedAt(address, targetOffset);
    enter("target", to, target);
    try {
      signal(address, counter, newValue);
    } finally {
      to.release();
    }
    return this;
  }

  @Override
  public final void end(FluxCclException reason) {
    if (setFailure(reason)) {
      onFailure(reason);
      tellFailed();
    }
  }

  @Override
  public final void close() {
    super.close();
    free();
  }

  /** Removes this connection from its context. Called when the connection has no user any more. */
  protected final void freed() {
    context.remove(this);
  }
}
