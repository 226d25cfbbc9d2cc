package io.fluxccl.transport.mapped;

import io.fluxccl.transport.CountedMemory;
import io.fluxccl.transport.PostUseCount;

/**
 * Memory of this rank, or of a peer that is mapped here. A memory that is closed stays mapped until
 * no post uses it and the work enqueued on the device before is done.
 */
public final class MappedMemory extends CountedMemory {
  private final MappedContext context;
  private final long address;
  private final Runnable unmap;

  /**
   * Creates a handle.
   *
   * @param context the context that mapped the memory
   * @param place the memory's place, for peers
   * @param address the address here
   * @param size bytes
   * @param unmap ends the mapping; runs once
   */
  public MappedMemory(
      MappedContext context, MappedPlace place, long address, long size, Runnable unmap) {
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
    // It takes locks of streams, and the last user may be a proxy.
    PostUseCount.runBlocking(() -> context.free(this, unmap));
  }
}
