// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbstractPinnedBuffer;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/** Memory of this process only. Shares no pair of cache lines with other memory. */
final class HostPinnedBuffer extends AbstractPinnedBuffer {
  private static final int ALIGNMENT = 128;

  private final long allocation;

  private HostPinnedBuffer(HostDevice device, long allocation, int size) {
    super(device, new UnsafeBuffer(allocation + ALIGNMENT - 1 & -ALIGNMENT, size));
    this.allocation = allocation;
  }

  static HostPinnedBuffer allocate(HostDevice device, int size) {
    if (size < 1) {
      throw new InvalidUsage("size=" + size + "; give 1 or more");
    }
    long length = (size + ALIGNMENT - 1L & -ALIGNMENT) + ALIGNMENT;
    long allocation;
    try {
      allocation = UnsafeApi.allocateMemory(length);
    } catch (OutOfMemoryError e) {
      throw new DeviceFailure(
          0, "OUT_OF_MEMORY", "allocating " + size + " bytes of pinned memory failed", e);
    }
    UnsafeApi.setMemory(allocation, length, (byte) 0);
    return new HostPinnedBuffer(device, allocation, size);
  }

  @Override
  protected void release() {
    UnsafeApi.freeMemory(allocation);
  }
}
