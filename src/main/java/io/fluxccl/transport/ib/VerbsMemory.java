// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

/** A registration of memory with an RDMA device. Any thread. */
public interface VerbsMemory extends AutoCloseable {
  /** Returns the key by which requests of this rank name the memory. */
  int localKey();

  /** Returns the key by which requests of peers name the memory. */
  int remoteKey();

  /**
   * Ends the registration. The device does not use the memory any more when this method returns.
   */
  @Override
  void close();
}
