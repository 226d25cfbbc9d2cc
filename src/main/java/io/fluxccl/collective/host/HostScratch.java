// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;

/** Memory that grows to what a call needs, and is kept for the calls after it. */
final class HostScratch implements AutoCloseable {
  private final Device device;
  private DeviceBuffer memory;

  HostScratch(Device device) {
    this.device = device;
  }

  /** Returns the address of at least {@code bytes} bytes with undefined content. */
  long reserve(long bytes) {
    if (memory == null || memory.size() < bytes) {
      close();
      memory = device.allocate(bytes);
    }
    return memory.address();
  }

  @Override
  public void close() {
    if (memory != null) {
      memory.close();
      memory = null;
    }
  }
}
