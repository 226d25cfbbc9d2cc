// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;

/**
 * Memory of this rank. Each connection that reads or writes it counts as a user. Closing it ends
 * the registration. The connection of a peer that is writing to it at this moment fails, so that
 * the network writes nothing afterwards. The memory is freed when the last user has left.
 */
public final class OwnedMemory extends NetMemoryHandle {
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

  /** Returns the buffer that holds the memory. */
  public DeviceBuffer buffer() {
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
      // A device that can't report when its copies are done executes none.
      Closing.onFailure(buffer::release, () -> context.staging().afterCopies(buffer::release));
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
