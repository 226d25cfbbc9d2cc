// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.wire.WireWriter;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Connects to a peer: each end sends the ordinal of its transport and its endpoint's bytes, then
 * connects to the other's endpoint. Ends that need it then notify each other that they are ready.
 */
final class Connector extends PeerSetup<Connection> {
  private static final Transport[] TRANSPORTS = Transport.values();

  private final Supplier<Endpoint> makeEndpoint;
  private final Consumer<Connection> connected;
  private final EndpointConfig config;
  private Endpoint endpoint;
  private FluxCclException refused;

  Connector(
      SetupMessages messages,
      Supplier<Endpoint> makeEndpoint,
      Consumer<Connection> connected,
      int peer,
      int tag,
      EndpointConfig config) {
    super(
        messages,
        peer,
        tag,
        "connectOnSetup(rank=" + peer + ", tag=" + tag + ", " + config.transport() + ")");
    this.makeEndpoint = makeEndpoint;
    this.connected = connected;
    this.config = config;
  }

  @Override
  public void beginSetup(Deadline deadline) {
    super.beginSetup(deadline);
    try {
      endpoint = makeEndpoint.get();
    } catch (Throwable e) {
      refused = FluxCclException.from(e);
      messages.sendError(peer, SetupMessages.Kind.CONNECTION, tag, refused, deadline);
      return;
    }
    byte[] payload =
        new WireWriter().uint8(config.transport().ordinal()).raw(endpoint.wire()).toBytes();
    messages.send(peer, SetupMessages.Kind.CONNECTION, tag, payload, deadline);
  }

  @Override
  public CompletableFuture<Void> endSetup(Deadline deadline) {
    if (refused != null) {
      // The peer's message belongs to this operation, which fails: receive it, so that the next
      // operation with the same tag does not.
      messages.recv(peer, SetupMessages.Kind.CONNECTION, tag, describe(), deadline);
      return CompletableFuture.failedFuture(explained(refused, deadline));
    }
    Deadline own = Deadline.after(config.connectTimeout());
    Deadline earlier = own.remainingNanos() < deadline.remainingNanos() ? own : deadline;
    CompletableFuture<Void> delivered =
        receive(SetupMessages.Kind.CONNECTION, earlier)
            .thenCompose(payload -> connect(checkTransport(payload), earlier))
            .thenAccept(this::deliver);
    return explaining(delivered, earlier)
        .whenComplete((done, failure) -> closeEndpointIf(failure != null));
  }

  private CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    if (!endpoint.needsReadyExchange()) {
      return endpoint.connect(remoteWire, deadline);
    }
    AtomicBoolean told = new AtomicBoolean();
    return endpoint
        .connect(remoteWire, deadline, () -> bothReady(told, deadline))
        .whenComplete(
            (connection, failure) -> {
              // A peer that waits for this end fails with its reason instead.
              if (failure != null && told.compareAndSet(false, true)) {
                Throwable reason = FluxCclException.from(failure);
                messages.sendError(peer, SetupMessages.Kind.READY, tag, reason, deadline);
              }
            });
  }

  private CompletableFuture<Void> bothReady(AtomicBoolean told, Deadline deadline) {
    told.set(true);
    messages.send(peer, SetupMessages.Kind.READY, tag, new byte[0], deadline);
    return receive(SetupMessages.Kind.READY, deadline).thenApply(bytes -> null);
  }

  private byte[] checkTransport(byte[] payload) {
    if (payload.length < 1 || payload[0] != config.transport().ordinal()) {
      String theirs =
          payload.length > 0 && payload[0] >= 0 && payload[0] < TRANSPORTS.length
              ? TRANSPORTS[payload[0]].name()
              : "an unknown transport";
      throw InvalidUsage.of(
          "%s: rank %s uses %s; both ends must name the same transport", describe(), peer, theirs);
    }
    return Arrays.copyOfRange(payload, 1, payload.length);
  }

  private void deliver(Connection connection) {
    connected.accept(connection);
    deliver(connection, connection::close);
  }

  private void closeEndpointIf(boolean failed) {
    if (failed) {
      endpoint.close();
    }
  }
}
