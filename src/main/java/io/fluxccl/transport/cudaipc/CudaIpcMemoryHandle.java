package io.fluxccl.transport.cudaipc;

import io.fluxccl.transport.MemoryHandle;

/**
 * Memory of this rank's GPU, or of a peer's that is mapped for this rank's GPU. It stays until the
 * work that was enqueued with it is done, also when it is closed before.
 */
final class CudaIpcMemoryHandle implements MemoryHandle {
  private final CudaIpcContext context;
  private final byte[] wire;
  private final long address;
  private final long size;
  private final UserCount users;

  CudaIpcMemoryHandle(
      CudaIpcContext context, byte[] wire, long address, long size, Runnable release) {
    this.context = context;
    this.wire = wire;
    this.address = address;
    this.size = size;
    this.users = new UserCount(() -> context.letGo(this, release));
  }

  @Override
  public byte[] wire() {
    return wire.clone();
  }

  @Override
  public long address() {
    return address;
  }

  long size() {
    return size;
  }

  boolean belongsTo(CudaIpcContext other) {
    return context == other;
  }

  /** Who enters enqueues work with this memory, then leaves. */
  UserCount users() {
    return users;
  }

  @Override
  public void close() {
    users.close();
  }
}
