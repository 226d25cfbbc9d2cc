// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/** A kind of device for tests of streams, and kernels for it; each runs as one thread. */
public interface TestDevice {
  /** Opens one of the devices and loads the kernels. */
  Device open(int index);

  /** Returns the number of devices. */
  int count();

  /** Waits until a word has at least a value. Arguments: address, least value. */
  Kernel spin();

  /** Stores a word. Arguments: address, value. */
  Kernel store();

  /** Adds to a word, not atomically. Arguments: address, value. */
  Kernel add();

  /** Sets bytes. Arguments: address, count as a long, value as an int. */
  Kernel fill();

  /** Returns the number of users of the buffer's memory. */
  int users(DeviceBuffer buffer);

  /** Waits until a closed device has released all its resources. */
  void awaitGone(Device device);
}
