// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import org.agrona.concurrent.AtomicBuffer;

/**
 * Memory of the host that host threads and the device's kernels both read and write, coherently.
 */
public interface PinnedBuffer extends AutoCloseable {
  /**
   * Returns the memory for host threads. Agrona checks bounds unless {@code
   * agrona.disable.bounds.checks} is set; the launcher sets it.
   */
  AtomicBuffer buffer();

  /** Returns the address of its first byte for kernels; a multiple of 64. */
  long deviceAddress();

  /** Returns its length in bytes. */
  int size();

  /** Returns whether it was closed. */
  boolean isClosed();

  /** Releases the memory once work already enqueued on the device's streams is done. Idempotent. */
  @Override
  void close();
}
