// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transport;
import org.agrona.MutableDirectBuffer;

/**
 * From kernel to kernel: the device signals by storing to the peer's mapped memory, the device
 * waits. Only over transports that map memory. Build one at both ends of the connection, then call
 * {@code setup()}.
 */
public final class SmDevice2DeviceSemaphore implements DeviceHandle, AutoCloseable {
  private final SemaphoreState state;

  /**
   * Queues the exchange of the inbound values.
   *
   * @param communicator whose {@code setup()} completes it
   * @param connection one of its connections, over SHM or CUDA_IPC
   * @throws InvalidUsage if the connection's transport does not map memory
   */
  public SmDevice2DeviceSemaphore(Communicator communicator, Connection connection) {
    requireMapped(connection);
    this.state = new SemaphoreState(communicator, connection, communicator.device());
  }

  /**
   * Creates a semaphore in memory that the two ranks have exchanged. It is usable at once.
   *
   * @param communicator of the connection
   * @param connection one of its connections, over SHM or CUDA_IPC
   * @param here the place of this end, in memory of this rank
   * @param there the place of the peer's end
   * @throws InvalidUsage if the connection's transport does not map memory
   */
  public SmDevice2DeviceSemaphore(
      Communicator communicator,
      Connection connection,
      SemaphoreLocation here,
      SemaphoreLocation there) {
    requireMapped(connection);
    this.state = new SemaphoreState(communicator, connection, here, there);
  }

  private static void requireMapped(Connection connection) {
    Transport transport = connection.transport();
    if (transport != Transport.SHM && transport != Transport.CUDA_IPC) {
      throw InvalidUsage.of(
          "SmDevice2DeviceSemaphore to rank %s over %s: kernels can signal each other only through"
              + " mapped memory (SHM, CUDA_IPC); use Host2DeviceSemaphore",
          connection.remoteRank(), transport);
    }
  }

  /** The connection it belongs to. */
  public Connection connection() {
    return state.connection;
  }

  @Override
  public int handleLength() {
    return SemaphoreDescriptor.HANDLE_LENGTH;
  }

  /**
   * Writes the device handle, {@link SemaphoreDescriptor#HANDLE_LENGTH} bytes.
   *
   * @param target where
   * @param offset from its start
   * @throws IllegalStateException before {@code setup()} was called
   */
  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    state.writeHandle(target, offset, state.remote().address() + state.remoteOffset);
  }

  /** Frees the values. No kernel may use the handle any more. Idempotent. */
  @Override
  public void close() {
    state.close();
  }
}
