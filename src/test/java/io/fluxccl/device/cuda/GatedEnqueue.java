// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** Enqueues waits that, like a waiting kernel, block a stream without a launch. */
public final class GatedEnqueue {
  private GatedEnqueue() {}

  /**
   * Runs the action while no memory is freed. Otherwise a concurrent free would wait for the
   * blocked stream, and the driver would block all other calls, including the one that releases the
   * stream.
   *
   * @param enqueue calls the driver
   */
  public static void run(Runnable enqueue) {
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      enqueue.run();
    }
  }
}
