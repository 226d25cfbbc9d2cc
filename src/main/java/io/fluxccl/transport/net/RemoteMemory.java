package io.fluxccl.transport.net;

/** Memory of a peer. */
final class RemoteMemory extends NetMemoryHandle {
  private volatile boolean closed;

  RemoteMemory(long id, long size, Place place) {
    super(id, size, place);
  }

  @Override
  boolean beginUse() {
    return !closed;
  }

  @Override
  void endUse() {
    // Nothing here is kept for it.
  }

  @Override
  public long address() {
    return 0;
  }

  @Override
  public void close() {
    closed = true;
  }
}
