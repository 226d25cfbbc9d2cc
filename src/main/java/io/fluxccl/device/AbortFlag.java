// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.device.AbortFlagDescriptor.ABORTED_OFFSET;
import static io.fluxccl.device.AbortFlagDescriptor.LENGTH;
import static io.fluxccl.device.AbortFlagDescriptor.OWN_PROXY;
import static io.fluxccl.device.AbortFlagDescriptor.WAITING_FOR_OFFSET;

import io.fluxccl.FluxCclException;

/**
 * The word that every waiting kernel of a communicator polls. After it is set, kernels abort within
 * a bounded number of polls. It also holds the rank that kernels wait for, which the host reads.
 * Thread-safe.
 */
public final class AbortFlag implements AutoCloseable {
  // Host threads take this lock, so that none of them uses freed memory. Kernels read the memory by
  // its address.
  private final PinnedBuffer memory;
  private boolean set;

  /**
   * Creates a flag that is not set, in memory of the given device.
   *
   * @param device the device whose kernels poll it
   */
  public AbortFlag(Device device) {
    this.memory = device.allocatePinned(LENGTH);
  }

  /** Sets the flag permanently. */
  public synchronized void set() {
    set = true;
    if (!memory.isClosed()) {
      // Pairs with the acquire in every device-side wait.
      memory.buffer().putLongRelease(ABORTED_OFFSET, 1);
    }
  }

  /** Returns whether the flag is set. */
  public synchronized boolean isSet() {
    return set;
  }

  /**
   * Returns the rank for which a kernel last began a long wait, or {@link
   * FluxCclException#NO_RANK}.
   */
  public int waitingFor() {
    return Math.max(FluxCclException.NO_RANK, (int) waitedFor() - 1);
  }

  /** Returns whether a GPU's kernel last began a long wait for the proxy of its own rank. */
  public boolean isWaitingForOwnProxy() {
    return waitedFor() == OWN_PROXY;
  }

  private synchronized long waitedFor() {
    return memory.isClosed() ? 0 : memory.buffer().getLongAcquire(WAITING_FOR_OFFSET);
  }

  /**
   * Returns the address by which kernels read it. {@link AbortFlagDescriptor} defines the layout.
   */
  public long deviceAddress() {
    return memory.deviceAddress();
  }

  /** Frees the memory; the state of the flag stays readable. Idempotent. */
  @Override
  public synchronized void close() {
    memory.close();
  }
}
