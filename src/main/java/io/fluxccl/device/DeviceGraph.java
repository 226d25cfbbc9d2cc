// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/**
 * Work that was recorded by {@link Device#record}, and runs as one with each {@link
 * DeviceStream#launch(DeviceGraph)}. Thread-safe.
 *
 * <p>A graph keeps the {@link DeviceBuffer}s that it was given as arguments or to copy from and to:
 * closing them takes effect when the graph is closed. Everything else that its kernels use must
 * stay open as long as the graph: pinned memory, abort flags, modules, what device handles stand
 * for, memory of other devices given as a number.
 */
public interface DeviceGraph extends AutoCloseable {
  /** Returns the device that it was recorded on, whose streams can launch it. */
  Device device();

  /** Refuses further launches. Those enqueued before are not affected. Idempotent. */
  @Override
  void close();
}
