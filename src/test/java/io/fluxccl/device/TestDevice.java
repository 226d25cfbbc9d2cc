// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/** A kind of device for tests of streams, and kernels for it; each runs as one thread. */
public abstract class TestDevice {
  /** Waits until a word has at least a value. Arguments: address, least value. */
  public final Kernel spin;

  /** Stores a word. Arguments: address, value. */
  public final Kernel store;

  /** Adds to a word, not atomically. Arguments: address, value. */
  public final Kernel add;

  /** Sets bytes. Arguments: address, count as a long, value as an int. */
  public final Kernel fill;

  protected TestDevice(Kernel spin, Kernel store, Kernel add, Kernel fill) {
    this.spin = spin;
    this.store = store;
    this.add = add;
    this.fill = fill;
  }

  /** Opens one of the devices and loads the kernels. */
  public abstract Device open(int index);

  /** Returns the number of devices. */
  public abstract int count();

  /** Returns the number of users of the buffer's memory. */
  public abstract int users(DeviceBuffer buffer);

  /** Returns whether all work of a stream is done. */
  public abstract boolean isIdle(DeviceStream stream);

  /** Returns whether a closed device has released all its resources. */
  public abstract boolean isGone(Device device);
}
