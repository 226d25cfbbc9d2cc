// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/**
 * Work recorded by {@link Device#record}. It runs once per {@link
 * DeviceStream#launch(DeviceGraph)}. Thread-safe.
 *
 * <p>A graph retains the {@link DeviceBuffer}s that are arguments of its kernels and copies: their
 * memory is released after the graph is closed. All other objects that its kernels use must stay
 * open as long as the graph. These are pinned memory, abort flags, modules, the objects of device
 * handles, and memory of other devices passed as a number.
 */
public interface DeviceGraph extends AutoCloseable {
  /** Returns the device that it was recorded on, whose streams can launch it. */
  Device device();

  /** Refuses further launches. Launches that are already enqueued still run. Idempotent. */
  @Override
  void close();
}
