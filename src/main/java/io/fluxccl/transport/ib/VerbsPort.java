package io.fluxccl.transport.ib;

import java.io.IOException;
import java.net.InetSocketAddress;

/**
 * An address of an RDMA device: a listener, a protection domain, and the connections made with
 * them. Used by one thread at a time, except for methods that say otherwise.
 */
public interface VerbsPort extends AutoCloseable {
  /** Admits connection requests. */
  interface Requests {
    /**
     * Returns the receiver of a link's events. Called by {@link VerbsPort#poll()}.
     *
     * @param privateData bytes from the peer, not trusted
     * @return the receiver of all events of the link, or null to reject the request
     */
    LinkEvents admit(byte[] privateData);
  }

  /** Returns the number of the port on which this device listens. Any thread. */
  int port();

  /**
   * Registers memory, which the device then reads and writes. Any thread.
   *
   * @param address the address of the first byte
   * @param length bytes, 1 or more
   * @return the registration
   * @throws IOException naming the errno: 14 (EFAULT) where the device can't reach such memory, 12
   *     (ENOMEM) above the limit of locked memory
   */
  VerbsMemory register(long address, int length) throws IOException;

  /**
   * Begins to connect; {@link #poll()} then calls {@code events}.
   *
   * @param peer the address on which the peer listens
   * @param privateData bytes for the peer's {@link Requests}; at most 56
   * @param events receives the events of the link
   * @return the link, which is not established yet
   */
  VerbsLink connect(InetSocketAddress peer, byte[] privateData, LinkEvents events)
      throws IOException;

  /**
   * Takes the events of all connections. Allocates nothing if there are none.
   *
   * @return the number of events
   */
  int poll() throws IOException;

  /** Stops listening and closes the device. All links and memories must be closed before. */
  @Override
  void close();
}
