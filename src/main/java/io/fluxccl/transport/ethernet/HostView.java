package io.fluxccl.transport.ethernet;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;

/**
 * Where sockets read and write a device's memory. The one place that knows: memory of a GPU would
 * be staged through pinned memory here.
 */
final class HostView {
  private HostView() {}

  /**
   * The address by which this process's sockets reach the buffer's first byte.
   *
   * @throws InvalidUsage if they can't
   */
  static long address(DeviceBuffer buffer) {
    DeviceKind kind = buffer.device().kind();
    if (kind != DeviceKind.HOST) {
      throw new InvalidUsage(
          "ETHERNET reaches memory of HOST devices only, and this buffer is on a "
              + kind
              + " device; copy it to host memory, or use another transport");
    }
    return buffer.address();
  }
}
