package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import java.util.concurrent.CompletableFuture;

/** An end that waits for its peer; the connection that it becomes does the work. */
final class EthernetEndpoint implements Endpoint {
  private final EthernetConnection connection;
  private final EndpointWire wire;

  EthernetEndpoint(EthernetConnection connection, EndpointWire wire) {
    this.connection = connection;
    this.wire = wire;
  }

  @Override
  public byte[] wire() {
    return wire.encode();
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    return connection.connect(remoteWire, deadline);
  }

  @Override
  public void close() {
    connection.giveUp();
  }
}
