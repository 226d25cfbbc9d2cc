// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** A listener for one connection. Used by one thread at a time. */
public interface NetListenComm extends AutoCloseable {
  /**
   * Returns a copy of the handle that the sender passes to {@link NetPlugin#connect}: 1 to 128
   * bytes.
   */
  byte[] handle();

  /**
   * Accepts the connection once it has arrived.
   *
   * @return the receiving end, or null if the connection has not arrived yet
   * @throws io.fluxccl.FluxCclException if the connection arrived but failed
   */
  NetRecvComm accept();

  /** Stops listening; an accepted connection stays open. Idempotent. */
  @Override
  void close();
}
