// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/**
 * A function that runs on a device in many threads at once. Immutable; reusable on any device of
 * its kind.
 */
public interface Kernel {
  /** Returns the kind of device it is made for. */
  DeviceKind kind();

  /** Returns its name, for diagnostics. */
  String name();
}
