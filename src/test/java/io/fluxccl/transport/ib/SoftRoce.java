// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.testing.TestJvms;
import java.time.Duration;
import org.awaitility.Awaitility;

/** Soft-RoCE devices that a test makes, where the machine is there for that. */
final class SoftRoce {
  private SoftRoce() {}

  /** Runs a command, which must succeed. */
  static void run(String... command) {
    TestJvms.run(command);
  }

  /** Returns a device once it has a link and an address. */
  static RdmaDevices.Device await(String name) {
    Awaitility.await()
        .atMost(Duration.ofSeconds(60))
        .until(() -> find(name) != null && find(name).active() && !find(name).gids().isEmpty());
    return find(name);
  }

  private static RdmaDevices.Device find(String name) {
    return RdmaDevices.ofThisMachine().stream()
        .filter(device -> device.name().equals(name))
        .findFirst()
        .orElse(null);
  }
}
