// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

/** A listener of one rank that is ready to join a group. */
public interface CollNetListener extends AutoCloseable {
  /** Returns a copy of the handle that the other ranks need to form the group: 1 to 128 bytes. */
  byte[] handle();

  /** Stops listening; a group that was formed stays open. Idempotent. */
  @Override
  void close();
}
