// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/** A kind of device for tests of streams, and kernels for it; each runs as one thread. */
public interface TestDevice {
  /** One of the devices, with the kernels loaded. */
  Device open(int index);

  /** How many there are. */
  int count();

  /** Waits until a word is at least so much: address, least value. */
  Kernel spin();

  /** Stores a word: address, value. */
  Kernel store();

  /** Adds to a word, not atomically: address, value. */
  Kernel add();

  /** Sets bytes: address, how many as a long, value as an int. */
  Kernel fill();

  /** How many use the buffer's memory. */
  int users(DeviceBuffer buffer);

  /** Returns once nothing of a closed device is left. */
  void awaitGone(Device device);
}
