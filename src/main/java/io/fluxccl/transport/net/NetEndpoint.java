// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** One end of a connection. The connection already exists and waits for its peer. */
final class NetEndpoint implements Endpoint {
  private final NetConnection connection;
  private final byte[] wire;

  NetEndpoint(NetConnection connection, byte[] wire) {
    this.connection = connection;
    this.wire = wire;
  }

  @Override
  public byte[] wire() {
    return wire.clone();
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    return connection.connect(remoteWire, deadline);
  }

  /**
   * {@inheritDoc}
   *
   * <p>Only where nothing is staged: the slots are pinned when the ends connect, which must not
   * happen while kernels run.
   */
  @Override
  public Optional<Connection> onDemand(Runnable demand) {
    if (connection.context().staging() != null) {
      return Optional.empty();
    }
    connection.onDemand(demand);
    return Optional.of(connection);
  }

  @Override
  public void close() {
    connection.giveUp();
  }
}
