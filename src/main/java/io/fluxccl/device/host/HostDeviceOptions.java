// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;

/**
 * Options of a host device. Immutable; {@code with…} methods return a changed copy.
 *
 * @param index its number among the host devices of this process, 0 or more
 * @param name the start of its threads' names
 */
public record HostDeviceOptions(int index, String name) {
  /** Index 0, threads named {@code fluxccl-host}. */
  public static final HostDeviceOptions DEFAULT = new HostDeviceOptions(0, "fluxccl-host");

  /** Refuses a negative index and a missing name. */
  public HostDeviceOptions {
    if (index < 0) {
      throw new InvalidUsage("index=" + index + "; give 0 or more");
    }
    if (name == null || name.isBlank()) {
      throw new InvalidUsage("name=" + name + "; give one for the threads' names");
    }
  }

  /** Returns these options with another index. */
  public HostDeviceOptions withIndex(int newIndex) {
    return new HostDeviceOptions(newIndex, name);
  }

  /** Returns these options with another start of threads' names. */
  public HostDeviceOptions withName(String newName) {
    return new HostDeviceOptions(index, newName);
  }
}
