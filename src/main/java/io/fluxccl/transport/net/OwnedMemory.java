package io.fluxccl.transport.net;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.PointerType;

/**
 * Memory of this rank. A connection that reads or writes it is counted as a user. Closing it ends
 * the registration: a peer that writes to it at this moment loses its connection, so that the
 * network writes nothing after that. The last user that leaves lets the memory go.
 */
final class OwnedMemory extends NetMemoryHandle {
  private final NetContext context;
  private final DeviceBuffer buffer;
  private final long address;

  OwnedMemory(NetContext context, long id, DeviceBuffer buffer, Place place) {
    super(context, id, buffer.size(), place);
    this.context = context;
    this.buffer = buffer;
    this.address = buffer.address();
    buffer.retain();
  }

  PointerType pointerType() {
    return isOnHost() ? PointerType.HOST : PointerType.CUDA;
  }

  DeviceBuffer buffer() {
    return buffer;
  }

  boolean contains(long offset, long length) {
    return offset >= 0 && length >= 0 && offset <= size() - length;
  }

  @Override
  public long address() {
    return address;
  }

  /** Frees the buffer; the registration is not used any more, and has gone from all connections. */
  void free() {
    if (isStaged()) {
      try {
        context.staging().afterCopies(buffer::release);
      } catch (RuntimeException e) {
        // A device that can't say when copies are done is not at work on any.
        buffer.release();
        throw e;
      }
    } else {
      buffer.release();
    }
  }

  @Override
  protected void closing() {
    context.closed(this);
  }

  @Override
  protected void lastUserLeft() {
    context.letGo(this);
  }
}
