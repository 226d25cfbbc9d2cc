// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import java.io.IOException;
import java.util.List;

/**
 * RDMA verbs, as far as this transport needs them. Implemented in {@code transport.ib.disni} and by
 * tests.
 */
public interface Verbs {
  /**
   * Returns the names of this machine's RDMA devices, in the order of {@code ibv_get_device_list}.
   * Any thread.
   *
   * @throws IOException naming the call that failed and its errno
   */
  List<String> deviceNames() throws IOException;

  /**
   * Opens a port of a device. Any thread.
   *
   * @param device one of {@link #deviceNames()}
   * @param port the number of its port, from 1
   * @return the open port
   * @throws IOException naming the call that failed and its errno
   */
  VerbsPort open(String device, int port) throws IOException;
}
