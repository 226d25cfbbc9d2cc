package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.netplugin.NetComm;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * What a context needs for memory of a device that the network can't reach: a stream for each
 * direction, shared by all connections, because a GPU has few queues of its own.
 */
final class Staging {
  private final Device device;
  private final DeviceStream outbound;
  private final DeviceStream inbound;

  Staging(Device device) {
    this.device = device;
    this.outbound = device.createPreferredStream("net-out");
    this.inbound = device.createPreferredStream("net-in");
  }

  StagingSlots sending(NetComm comm, int count) {
    return new StagingSlots(device, outbound, comm, count);
  }

  StagingSlots receiving(NetComm comm, int count) {
    return new StagingSlots(device, inbound, comm, count);
  }

  /**
   * Asks the device whether it works.
   *
   * @param told null, or why it does not; on any thread
   */
  void ask(Consumer<Throwable> told) {
    CompletableFuture.allOf(outbound.completion(), inbound.completion())
        .whenComplete((done, error) -> told.accept(error));
  }

  /** Runs an action when copies that were enqueued are done. */
  void afterCopies(Runnable action) {
    device.whenEnqueuedWorkIsDone(action);
  }

  void close() {
    Closing.all(outbound, inbound);
  }
}
