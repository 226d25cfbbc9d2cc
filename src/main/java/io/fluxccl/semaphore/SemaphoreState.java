package io.fluxccl.semaphore;

import static io.fluxccl.semaphore.SemaphoreDescriptor.INBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.STATE_LENGTH;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.TransportFlags;

/**
 * What every kind of semaphore is made of: local values, of which the peer sees the inbound one,
 * and the peer's inbound value. Made by queuing on the communicator; usable after its {@code
 * setup()}.
 */
final class SemaphoreState implements AutoCloseable {
  private final Connection connection;
  private final DeviceBuffer values;
  private final RegisteredMemory inbound;
  private final NonblockingFuture<RegisteredMemory> remoteInbound;

  SemaphoreState(Communicator communicator, Connection connection, Device device) {
    int peer = communicator.remoteRankOf(connection);
    int tag = communicator.tagOf(connection);
    this.connection = connection;
    this.values = device.allocate(STATE_LENGTH);
    try {
      this.inbound =
          communicator.registerMemory(
              values.slice(INBOUND_OFFSET, Long.BYTES), TransportFlags.of(connection.transport()));
    } catch (RuntimeException e) {
      values.close();
      throw e;
    }
    communicator.sendMemoryOnSetup(inbound, peer, tag);
    this.remoteInbound = communicator.recvMemoryOnSetup(peer, tag);
  }

  Connection connection() {
    return connection;
  }

  int peer() {
    return connection.remoteRank();
  }

  long address(int offset) {
    return values.address() + offset;
  }

  /**
   * The peer's inbound value.
   *
   * @throws IllegalStateException before {@code setup()} was called
   */
  RegisteredMemory remoteInbound() {
    return remoteInbound.join();
  }

  @Override
  public void close() {
    remoteInbound.thenAccept(RegisteredMemory::close);
    inbound.close();
    values.close();
  }
}
