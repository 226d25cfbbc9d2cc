// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.transport.EndpointConfig;

/** The network below a context: it makes the links of the context's connections. */
public interface LinkNetwork extends AutoCloseable {
  /** Returns the network's name, which must be the same on all ranks. */
  String name();

  /** Returns whether links reach the memory of GPUs. */
  boolean reachesGpus();

  /**
   * Creates an end of a link, which listens for its peer. Any thread.
   *
   * @param peer the rank of the other end
   * @param config of the connection that uses the link
   */
  Link listen(int peer, EndpointConfig config);

  /** Serves peers that connect. The agent calls it periodically. */
  default void tend(long nowNs) {}

  /** Closes the network. Called when all its links are closed. */
  @Override
  void close();
}
