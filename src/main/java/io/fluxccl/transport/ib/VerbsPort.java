package io.fluxccl.transport.ib;

import java.io.IOException;
import java.net.InetSocketAddress;

/**
 * An address of an RDMA device: a listener, a protection domain, and the connections made with
 * them. Used by one thread at a time, but for what says otherwise.
 */
public interface VerbsPort extends AutoCloseable {
  /** Who decides on connection requests. */
  interface Requests {
    /**
     * Whom a request is for. Called by {@link VerbsPort#poll()}.
     *
     * @param privateData what the peer said, not trusted
     * @return who is told of the link from now on, or null to reject it
     */
    LinkEvents admit(byte[] privateData);
  }

  /** Where it listens. Any thread. */
  int port();

  /**
   * Lets the device read and write memory. Any thread.
   *
   * @param address of its first byte
   * @param length bytes, 1 or more
   * @return the registration
   * @throws IOException with the errno; 14 (EFAULT) where the device can't reach such memory, 12
   *     (ENOMEM) above the limit of locked memory
   */
  VerbsMemory register(long address, int length) throws IOException;

  /**
   * Begins to connect; all else is told to {@code events} by {@link #poll()}.
   *
   * @param peer where the peer listens
   * @param privateData what the peer's {@link Requests} is told; at most 56 bytes
   * @param events who is told
   * @return the link, which is not established yet
   */
  VerbsLink connect(InetSocketAddress peer, byte[] privateData, LinkEvents events)
      throws IOException;

  /**
   * Takes what happened to the connections. Allocates nothing when nothing did.
   *
   * @return how many events
   */
  int poll() throws IOException;

  /** Stops listening and lets the device go. After all links and memories were closed. */
  @Override
  void close();
}
