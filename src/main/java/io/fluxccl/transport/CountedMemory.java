// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.UseCount;

/**
 * For transports: a memory handle that counts the posts that use it. The last user frees the
 * memory, so it stays open under every post that uses it. Never waits; thread-safe.
 */
@Experimental
public abstract class CountedMemory extends UseCount implements MemoryHandle {
  private final TransportContext context;
  private final byte[] wire;
  private final long size;

  /**
   * Creates an open handle.
   *
   * @param context the context that made it
   * @param wire the bytes of {@link #wire()}
   * @param size bytes of the memory
   */
  protected CountedMemory(TransportContext context, byte[] wire, long size) {
    this.context = context;
    this.wire = wire;
    this.size = size;
  }

  @Override
  public final byte[] wire() {
    return wire.clone();
  }

  /** Returns whether that context made this handle, and the memory has at least that many bytes. */
  final boolean belongsTo(TransportContext other, long bytes) {
    return context == other && size >= bytes;
  }

  /** Closes the memory for new posts, and frees it once no post uses it. Idempotent. */
  @Override
  public final void close() {
    if (beginClose()) {
      try {
        closing();
      } finally {
        release();
      }
    }
  }

  /** Called once new posts are refused, before the memory can be freed. */
  protected void closing() {}

  /** Frees the memory once it is closed and no post uses it. */
  @Override
  protected abstract void lastUserLeft();
}
