package io.fluxccl.transport.ethernet;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.netty.channel.EventLoop;
import java.util.concurrent.CompletionException;
import java.util.concurrent.RejectedExecutionException;

/**
 * What a context needs for memory that sockets can't reach: a stream for each direction, shared by
 * all connections, because streams beyond the device's own queues would wait for each other's
 * kernels; and the ring through which all that arrives goes. Everything pinned is taken when the
 * context or a connection is made, not while kernels run. Confined to the event loop, but for
 * making and {@link #refuseOthers}.
 */
final class Staging {
  private final Device device;
  private final EventLoop loop;
  private final DeviceStream outbound;
  private final DeviceStream inbound;
  private final StagedInput input;
  private final CopyPoll poll;
  private int checks;

  Staging(Device device, EventLoop loop) {
    this.device = device;
    this.loop = loop;
    this.poll = new CopyPoll(loop, this::check);
    this.outbound = device.createPreferredStream("ethernet-out");
    this.inbound = device.createPreferredStream("ethernet-in");
    this.input = new StagedInput(device, inbound, poll, loop);
  }

  /** A connection's ring. */
  StagedOutput output(EthernetConnection connection, WindowPool pool) {
    return new StagedOutput(connection, device, outbound, poll, pool);
  }

  /** The ring for what arrives. */
  StagedInput input() {
    return input;
  }

  /**
   * Refuses memory that this context's streams can't copy.
   *
   * @throws InvalidUsage if it is of another device
   */
  void refuseOthers(DeviceBuffer buffer) {
    Device other = buffer.device();
    if (other.kind() != device.kind() || other.index() != device.index()) {
      throw InvalidUsage.of(
          "the buffer is on %s device %s, the communicator on %s device %s; register"
              + " memory of the communicator's own device",
          other.kind(), other.index(), device.kind(), device.index());
    }
  }

  /** Runs an action when copies that were enqueued are done. Called from any thread. */
  void afterCopies(Runnable action) {
    device.whenEnqueuedWorkIsDone(action);
  }

  /** The device is given what is in flight; all else ends. */
  void close() {
    poll.close();
    Closing.all(input::close, outbound, inbound);
  }

  /** Copies are long in coming: a device that has failed would never say that they are done. */
  private void check() {
    if (checks == 0) {
      checks = 2;
      outbound.completion().whenComplete((done, error) -> checked(error));
      inbound.completion().whenComplete((done, error) -> checked(error));
    }
  }

  private void checked(Throwable error) {
    try {
      loop.execute(
          () -> {
            checks--;
            if (error != null) {
              poll.fail(reason(error));
            }
          });
    } catch (RejectedExecutionException e) {
      // The context is closed, and nobody waits for copies any more.
      checks = 0;
    }
  }

  private static FluxCclException reason(Throwable error) {
    Throwable cause = error instanceof CompletionException ? error.getCause() : error;
    return cause instanceof FluxCclException
        ? (FluxCclException) cause
        : new DeviceFailure(0, "STREAM_FAILED", "a stream failed: " + cause, cause);
  }
}
