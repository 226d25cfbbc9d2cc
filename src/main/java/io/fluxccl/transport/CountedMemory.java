// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;

/** For transports: a memory handle that counts the posts that use it. Thread-safe. */
@Experimental
public abstract class CountedMemory extends PostUseCount implements MemoryHandle {
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

  /** Frees the memory once it is closed and no post uses it. */
  @Override
  protected abstract void lastUserLeft();
}
