// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;

/**
 * One transport's access to one memory. {@link TransportContext#register} creates it for the owner,
 * and {@link TransportContext#open} for a peer. Thread-safe.
 */
@Experimental
public interface MemoryHandle extends AutoCloseable {
  /**
   * Returns the bytes that a peer's {@link TransportContext#open} needs to reach the memory; at
   * most 64 KiB.
   */
  byte[] wire();

  /**
   * Returns the address by which this process and its kernels can read and write the memory, or 0
   * if they can't.
   */
  long address();

  /** Ends the registration (owner) or the mapping (peer). Idempotent. */
  @Override
  void close();
}
