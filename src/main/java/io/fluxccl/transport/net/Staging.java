// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * The streams that copy to and from device memory that the network can't access, one for each
 * direction. All connections of a context share them, because a GPU has few hardware queues.
 */
final class Staging {
  private final Device device;
  private final DeviceStream outbound;
  private final DeviceStream inbound;

  Staging(Device device) {
    this.device = device;
    this.outbound = device.createPreferredStream("net-out");
    this.inbound = Closing.onFailure(outbound, () -> device.createPreferredStream("net-in"));
  }

  StagingSlots sending(Link link, int count) {
    return new StagingSlots(device, outbound, link, count, true);
  }

  StagingSlots receiving(Link link, int count) {
    return new StagingSlots(device, inbound, link, count, false);
  }

  /**
   * Checks the health of the device, without waiting.
   *
   * @param told callback that receives null if the device works, else the error; runs on any thread
   */
  void ask(Consumer<Throwable> told) {
    CompletableFuture.allOf(outbound.completion(), inbound.completion())
        .whenComplete((done, error) -> told.accept(error));
  }

  /** Runs an action once the copies enqueued so far are done. */
  void afterCopies(Runnable action) {
    device.whenEnqueuedWorkIsDone(action);
  }

  void close() {
    Closing.all(outbound, inbound);
  }
}
