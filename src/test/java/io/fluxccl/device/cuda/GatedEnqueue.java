// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** Enqueues, without a launch, what holds a stream up as a waiting kernel does. */
public final class GatedEnqueue {
  private GatedEnqueue() {}

  /**
   * Runs it while no memory is freed. Otherwise a free that has just begun would wait for what is
   * held up, the driver would keep other calls waiting for the free, and so the one that lets go.
   *
   * @param enqueue calls the driver
   */
  public static void run(Runnable enqueue) {
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      enqueue.run();
    }
  }
}
