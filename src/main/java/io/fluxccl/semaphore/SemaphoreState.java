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

import io.fluxccl.NonblockingFuture;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.TransportFlags;
import org.agrona.MutableDirectBuffer;

/**
 * The state of every kind of semaphore: local values, of which the peer writes the inbound one, and
 * the peer's inbound value. Its exchange is queued on the communicator; usable after the
 * communicator's {@code setup()}.
 */
final class SemaphoreState implements AutoCloseable {
  final Communicator communicator;
  final Connection connection;
  private final DeviceBuffer values;
  private final RegisteredMemory inbound;
  private final NonblockingFuture<RegisteredMemory> remoteInbound;

  SemaphoreState(Communicator communicator, Connection connection) {
    int peer = communicator.remoteRankOf(connection);
    int tag = communicator.tagOf(connection);
    this.communicator = communicator;
    this.connection = connection;
    this.values = communicator.device().allocate(STATE_LENGTH);
    try {
      this.inbound =
          communicator.registerMemory(
              values.slice(INBOUND_OFFSET, Long.BYTES), TransportFlags.of(connection.transport()));
    } catch (RuntimeException | Error e) {
      values.close();
      throw e;
    }
    communicator.sendMemoryOnSetup(inbound, peer, tag);
    this.remoteInbound = communicator.recvMemoryOnSetup(peer, tag);
  }

  int peer() {
    return connection.remoteRank();
  }

  long address(int offset) {
    return values.address() + offset;
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
   * Returns the peer's inbound value.
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
