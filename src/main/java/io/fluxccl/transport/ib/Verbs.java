package io.fluxccl.transport.ib;

import java.io.IOException;
import java.net.Inet4Address;

/**
 * RDMA verbs and connection management, as far as this transport needs them. Implemented in {@code
 * transport.ib.disni} and by tests.
 */
public interface Verbs {
  /**
   * Opens the RDMA device that has an address, and listens there. Any thread.
   *
   * @param address the address of one of this machine's RDMA devices
   * @param requests admits connection requests
   * @return the open port, to be used by one thread
   * @throws IOException naming the call that failed and its errno
   */
  VerbsPort open(Inet4Address address, VerbsPort.Requests requests) throws IOException;
}
