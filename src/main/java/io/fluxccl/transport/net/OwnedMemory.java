// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.PointerType;

/**
 * Memory of this rank. Each connection that reads or writes it counts as a user. Closing it ends
 * the registration. The connection of a peer that is writing to it at this moment fails, so that
 * the network writes nothing afterwards. The memory is freed when the last user has left.
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

  /** Returns whether this is a GPU's memory, and a device of the network accepts dma-bufs. */
  boolean isReachedByDmaBuf(int netDevice) {
    return !isOnHost()
        && context.plugin().properties(netDevice).pointers().contains(PointerType.DMABUF);
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

  /** Frees the buffer. Called once all connections have dropped the registration. */
  void free() {
    if (isStaged()) {
      try {
        context.staging().afterCopies(buffer::release);
      } catch (RuntimeException e) {
        // A device that can't report when its copies are done executes none.
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
