// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.device.DeviceBuffer;

/** One transport of one communicator: its sockets, registrations and mappings. Thread-safe. */
@Experimental
public interface TransportContext extends AutoCloseable {
  /** Returns the transport. */
  Transport transport();

  /**
   * Registers memory of this rank, so that peers can access it.
   *
   * @param buffer memory of this rank's device; kept alive until the handle is closed
   * @return the owner's handle
   * @throws io.fluxccl.InvalidUsage if this transport can't reach such memory
   */
  MemoryHandle register(DeviceBuffer buffer);

  /**
   * Opens memory of another rank (or of this one).
   *
   * @param wire the owner's {@link MemoryHandle#wire()}, not yet checked
   * @param origin the memory's origin, as its owner sent it
   * @return a handle of the peer's memory
   * @throws io.fluxccl.TransportFailure if the memory can't be reached, or {@code wire} is
   *     malformed
   */
  MemoryHandle open(byte[] wire, MemoryOrigin origin);

  /**
   * Creates one end of a new connection.
   *
   * @param remoteRank the peer; may be this rank
   * @param tag distinguishes several connections to one peer
   * @param config the settings, for this transport
   * @return the end
   */
  Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config);

  /**
   * Closes connections, sockets, registrations and mappings. Idempotent; does not wait for the
   * device or for peers.
   */
  @Override
  void close();
}
