// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.MutableDirectBuffer;

/**
 * A semaphore from host to kernel: the host signals through the connection, after all its earlier
 * posts there, and the peer's device waits. Works over every transport. Build one at both ends of
 * the connection, then call {@code setup()}.
 */
public final class Host2DeviceSemaphore implements DeviceHandle, AutoCloseable {
  private final SemaphoreState state;
  private final AtomicLong outbound = new AtomicLong();
  private RegisteredMemory remote;

  /**
   * Queues the exchange of the inbound values.
   *
   * @param communicator whose {@code setup()} completes it
   * @param connection one of its connections
   */
  public Host2DeviceSemaphore(Communicator communicator, Connection connection) {
    this.state = new SemaphoreState(communicator, connection, communicator.device());
  }

  /**
   * Creates a semaphore in memory that the two ranks have exchanged. It is usable at once.
   *
   * @param communicator of the connection
   * @param connection one of its connections
   * @param here the place of this end, in memory of this rank
   * @param there the place of the peer's end
   */
  public Host2DeviceSemaphore(
      Communicator communicator,
      Connection connection,
      SemaphoreLocation here,
      SemaphoreLocation there) {
    this.state = new SemaphoreState(communicator, connection, here, there);
  }

  /** The connection it belongs to. */
  public Connection connection() {
    return state.connection;
  }

  /**
   * Signals the peer's device: its wait returns when everything posted on the connection before is
   * there. Called by one thread at a time: the proxy's, where a proxy channel uses this semaphore.
   * Allocates nothing of its own.
   *
   * @throws IllegalStateException before {@code setup()} was called
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  public void signal() {
    if (remote == null) {
      remote = state.remote();
    }
    state.connection.updateAndSync(remote, state.remoteOffset, outbound, outbound.get() + 1);
  }

  @Override
  public int handleLength() {
    return SemaphoreDescriptor.HANDLE_LENGTH;
  }

  /**
   * Writes the device handle, {@link SemaphoreDescriptor#HANDLE_LENGTH} bytes: one for waiting
   * only.
   *
   * @param target where
   * @param offset from its start
   */
  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    state.writeHandle(target, offset, 0);
  }

  /** Returns whether this semaphore was closed. */
  public boolean isClosed() {
    return state.isClosed();
  }

  /** Frees the values. No kernel may use the handle any more. Idempotent. */
  @Override
  public void close() {
    state.close();
  }
}
