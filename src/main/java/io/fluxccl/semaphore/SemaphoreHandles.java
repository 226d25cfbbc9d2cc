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

import io.fluxccl.communicator.Communicator;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/** Writes the handle that {@link SemaphoreDescriptor} lays out. */
final class SemaphoreHandles {
  private SemaphoreHandles() {}

  /**
   * {@code remoteInbound} is 0 where the host signals; then the device gets no outbound value
   * either.
   */
  static void write(
      MutableDirectBuffer target,
      int offset,
      Communicator communicator,
      SemaphoreState state,
      long remoteInbound) {
    target.putLong(
        offset + HANDLE_INBOUND_OFFSET, state.address(INBOUND_OFFSET), ByteOrder.LITTLE_ENDIAN);
    target.putLong(
        offset + HANDLE_EXPECTED_OFFSET, state.address(EXPECTED_OFFSET), ByteOrder.LITTLE_ENDIAN);
    target.putLong(
        offset + HANDLE_OUTBOUND_OFFSET,
        remoteInbound == 0 ? 0 : state.address(OUTBOUND_OFFSET),
        ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_REMOTE_INBOUND_OFFSET, remoteInbound, ByteOrder.LITTLE_ENDIAN);
    target.putLong(
        offset + HANDLE_ABORT_OFFSET,
        communicator.abortFlag().deviceAddress(),
        ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_PEER_OFFSET, state.peer(), ByteOrder.LITTLE_ENDIAN);
  }
}
