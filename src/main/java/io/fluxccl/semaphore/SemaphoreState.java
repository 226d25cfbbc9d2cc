// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.semaphore.SemaphoreDescriptor.EXPECTED_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_ABORT_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_EXPECTED_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_INBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_OUTBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_PEER_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_REMOTE_INBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.INBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.OUTBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.STATE_LENGTH;
import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.TransportFlags;
import java.util.concurrent.CompletableFuture;
import org.agrona.MutableDirectBuffer;

/**
 * The state of every kind of semaphore: local values, of which the peer writes the inbound one, and
 * the peer's inbound value. They are its own, and their exchange is queued on the communicator: it
 * is usable after the communicator's {@code setup()}. Or they are parts of memory that the ranks
 * have exchanged: it is usable at once.
 */
final class SemaphoreState implements AutoCloseable {
  /** Closes the resources that the semaphore owns. */
  private final Lifecycle lifecycle = new Lifecycle("semaphore");

  final Communicator communicator;
  final Connection connection;
  private final long address;
  private final CompletableFuture<RegisteredMemory> remote;

  /** The offset of the peer's inbound value in that memory. */
  final long remoteOffset;

  /**
   * Queues the exchange of values of its own.
   *
   * @param device that the values are on
   */
  SemaphoreState(Communicator communicator, Connection connection, Device device) {
    int peer = communicator.remoteRankOf(connection);
    int tag = communicator.tagOf(connection);
    this.communicator = communicator;
    this.connection = connection;
    DeviceBuffer values = lifecycle.own(device.allocate(STATE_LENGTH));
    TransportFlags flags = TransportFlags.of(connection.transport());
    RegisteredMemory inbound =
        Closing.onFailure(
            values::close,
            () -> communicator.registerMemory(values.slice(INBOUND_OFFSET, Long.BYTES), flags));
    lifecycle.own(inbound);
    communicator.sendMemoryOnSetup(inbound, peer, tag);
    this.address = values.address();
    this.remote = communicator.recvMemoryOnSetup(peer, tag);
    this.remoteOffset = 0;
    lifecycle.own(() -> remote.thenAccept(RegisteredMemory::close));
  }

  /** Takes parts of memory, {@link SemaphoreDescriptor#STATE_LENGTH} zeros at each end. */
  SemaphoreState(
      Communicator communicator,
      Connection connection,
      SemaphoreLocation here,
      SemaphoreLocation there) {
    this.communicator = communicator;
    this.connection = connection;
    this.address = here.memory().buffer().address() + here.offset();
    this.remote = CompletableFuture.completedFuture(there.memory());
    this.remoteOffset = there.offset() + INBOUND_OFFSET;
  }

  int peer() {
    return connection.remoteRank();
  }

  long address(int offset) {
    return address + offset;
  }

  /**
   * Writes the handle that {@link SemaphoreDescriptor} lays out.
   *
   * @param remoteInbound address of the peer's inbound value; 0 where the host signals, so that the
   *     device gets no outbound value either
   */
  void writeHandle(MutableDirectBuffer target, int offset, long remoteInbound) {
    long outbound = remoteInbound == 0 ? 0 : address(OUTBOUND_OFFSET);
    target.putLong(offset + HANDLE_INBOUND_OFFSET, address(INBOUND_OFFSET), LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_EXPECTED_OFFSET, address(EXPECTED_OFFSET), LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_OUTBOUND_OFFSET, outbound, LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_REMOTE_INBOUND_OFFSET, remoteInbound, LITTLE_ENDIAN);
    target.putLong(
        offset + HANDLE_ABORT_OFFSET, communicator.abortFlag().deviceAddress(), LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_PEER_OFFSET, peer(), LITTLE_ENDIAN);
  }

  /**
   * Returns the memory with the peer's inbound value, at {@link #remoteOffset}.
   *
   * @throws IllegalStateException before {@code setup()} was called
   */
  RegisteredMemory remote() {
    return remote.join();
  }

  boolean isClosed() {
    return lifecycle.isClosed();
  }

  @Override
  public void close() {
    lifecycle.close();
  }
}
