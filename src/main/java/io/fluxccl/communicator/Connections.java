// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/** The connections of a communicator, from when they are made until they are closed. */
final class Connections implements AutoCloseable {
  private final SetupMessages messages;
  private final TransportContexts transports;
  private final Consumer<FluxCclException> abort;
  private final Map<Connection, Boolean> open = new ConcurrentHashMap<>();

  /**
   * Creates an empty set.
   *
   * @param abort called with the failure of a connection that could not be made on demand
   */
  Connections(
      SetupMessages messages, TransportContexts transports, Consumer<FluxCclException> abort) {
    this.messages = messages;
    this.transports = transports;
    this.abort = abort;
  }

  /** Returns the operation that makes a connection at set-up. */
  Connector onSetup(int peer, int tag, EndpointConfig config) {
    return new Connector(
        messages, () -> endpoint(peer, tag, config), this::keep, peer, tag, config);
  }

  /** {@link Communicator#connectOnDemand}. */
  Optional<Connection> onDemand(
      int peer, int tag, EndpointConfig config, OnDemandConnect.Numbers lane) {
    OnDemandConnect demand =
        new OnDemandConnect(
            messages, () -> endpoint(peer, tag, config), peer, tag, config, lane, abort);
    Optional<Connection> connection = demand.begin();
    connection.ifPresent(this::keep);
    return connection;
  }

  private Endpoint endpoint(int peer, int tag, EndpointConfig config) {
    return transports.of(config.transport()).createEndpoint(peer, tag, config);
  }

  private void keep(Connection connection) {
    open.put(connection, true);
    // A failed connection stays for the dump; a closed one is removed.
    connection
        .failed()
        .thenAccept(
            reason -> {
              if (reason instanceof Aborted) {
                open.remove(connection);
              }
            });
  }

  /** Returns a connection that is one of these. */
  Connection require(Connection connection) {
    if (!open.containsKey(connection)) {
      throw new InvalidUsage("the connection is not one of this communicator, or was closed");
    }
    return connection;
  }

  Optional<FluxCclException> interruption() {
    return open.keySet().stream()
        .map(Connection::interruption)
        .filter(Objects::nonNull)
        .findFirst();
  }

  Set<Connection> all() {
    return open.keySet();
  }

  @Override
  public void close() {
    Closing.all(open.keySet());
  }
}
