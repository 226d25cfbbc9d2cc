// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** Memory that is registered with one comm. */
public interface NetMemory extends AutoCloseable {
  /** Ends the registration; no request in flight may use the memory. Idempotent. */
  @Override
  void close();
}
