package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
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

  @Override
  public void close() {
    connection.giveUp();
  }
}
