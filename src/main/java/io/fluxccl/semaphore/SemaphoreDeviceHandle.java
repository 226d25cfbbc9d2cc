// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_ABORT_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_EXPECTED_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_INBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_OUTBOUND_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_PEER_OFFSET;
import static io.fluxccl.semaphore.SemaphoreDescriptor.HANDLE_REMOTE_INBOUND_OFFSET;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;

/**
 * A semaphore as kernels of the host device see it: a flyweight over the bytes of {@link
 * SemaphoreDescriptor}'s handle. One thread of a kernel calls its methods; they allocate nothing.
 */
public final class SemaphoreDeviceHandle {
  private long inbound;
  private long expected;
  private long outbound;
  private long remoteInbound;
  private long abort;
  private int peer;

  /**
   * Wraps the bytes of a handle.
   *
   * @param address of its first byte
   * @return this
   */
  public SemaphoreDeviceHandle wrap(long address) {
    inbound = HostMemory.getLong(address + HANDLE_INBOUND_OFFSET);
    expected = HostMemory.getLong(address + HANDLE_EXPECTED_OFFSET);
    outbound = HostMemory.getLong(address + HANDLE_OUTBOUND_OFFSET);
    remoteInbound = HostMemory.getLong(address + HANDLE_REMOTE_INBOUND_OFFSET);
    abort = HostMemory.getLong(address + HANDLE_ABORT_OFFSET);
    peer = (int) HostMemory.getLong(address + HANDLE_PEER_OFFSET);
    return this;
  }

  /** The rank at the other end. */
  public int peer() {
    return peer;
  }

  /** The address of the abort flag that waits watch. */
  public long abortAddress() {
    return abort;
  }

  /**
   * Signals the peer that everything this thread wrote before is there. Only for semaphores that
   * the device signals.
   */
  public void signal() {
    // Pairs with the acquire in the peer's await() and poll().
    HostMemory.putLongRelease(remoteInbound, nextOutbound());
  }

  /** {@link #signal()} without the promise about earlier writes: an event, not data. */
  public void relaxedSignal() {
    HostMemory.putLongOpaque(remoteInbound, nextOutbound());
  }

  private long nextOutbound() {
    long next = HostMemory.getLong(outbound) + 1;
    HostMemory.putLong(outbound, next);
    return next;
  }

  /**
   * Waits for the peer's next signal.
   *
   * @return true when it is there, with everything the peer wrote before it; false when the
   *     communicator was aborted
   */
  public boolean await() {
    long next = HostMemory.getLong(expected) + 1;
    HostMemory.putLong(expected, next);
    // The acquire in awaitAtLeast pairs with the peer's release.
    return SpinWait.awaitAtLeast(inbound, next, abort, peer);
  }

  /** Takes the peer's next signal if it is there; otherwise returns false and takes nothing. */
  public boolean poll() {
    long next = HostMemory.getLong(expected) + 1;
    // Pairs with the release in the peer's signal().
    if (HostMemory.getLongAcquire(inbound) < next) {
      return false;
    }
    HostMemory.putLong(expected, next);
    return true;
  }
}
