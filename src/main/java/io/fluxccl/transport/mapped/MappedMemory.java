// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.transport.CountedMemory;

/**
 * Memory of this rank, or a peer's memory that is mapped in this process. A closed memory stays
 * mapped until no post uses it and all work enqueued on the device before the close is done.
 */
public final class MappedMemory extends CountedMemory {
  private final MappedContext context;
  private final long address;
  private final Runnable unmap;

  /**
   * Creates a handle.
   *
   * @param context the context that mapped the memory
   * @param place the place of the memory, as peers receive it
   * @param address the address in this process
   * @param size bytes
   * @param unmap ends the mapping; runs once
   */
  public MappedMemory(
      MappedContext context,
      MappedMemoryDescriptor place,
      long address,
      long size,
      Runnable unmap) {
    super(context, place.encode(), size);
    this.context = context;
    this.address = address;
    this.unmap = unmap;
  }

  @Override
  public long address() {
    return address;
  }

  @Override
  protected void lastUserLeft() {
    // Unmapping takes stream locks, and the last user may be a proxy thread, which must not block.
    BlockingTasks.run(() -> context.free(this, unmap));
  }
}
