package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Connects one end to the other: both share one queue pair. The end with the lesser token connects
 * and presents the other end's token. An end that is its own peer does both. Everything but {@link
 * #connect(byte[], Deadline)} runs on the agent's thread.
 */
final class IbConnector implements LinkEvents {
  private final IbContext context;
  private final IbConnection connection;
  private final byte[] token;
  private final RdmaOptions options;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private volatile boolean delivered;

  // Confined to the agent.
  private Deadline deadline;
  private VerbsLink link;
  private VerbsLink echo;
  private boolean established;

  /**
   * Creates the connector of a new end.
   *
   * @param token a peer must present it to connect to this end
   */
  IbConnector(IbContext context, IbConnection connection, byte[] token, RdmaOptions options) {
    this.context = context;
    this.connection = connection;
    this.token = token;
    this.options = options;
  }

  byte[] token() {
    return token;
  }

  /** Returns whether the caller of connect has received the connection. */
  boolean isDelivered() {
    return delivered;
  }

  /** Returns whether connection events are expected soon. Called by the agent. */
  boolean isConnecting() {
    return deadline != null && !delivered;
  }

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline by) {
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(connection.connectTwice());
    }
    // A caller that cancels gives up this end.
    connected.whenComplete((done, error) -> connection.giveUp());
    try {
      IbEndpoint.End peer = IbEndpoint.End.decode(remoteWire, connection.remoteRank());
      if (peer.tag() == connection.tag()) {
        context.agent().execute(() -> connect(peer, by));
      } else {
        String message = "rank %s connects with tag=%s";
        connection.fail(message.formatted(connection.remoteRank(), peer.tag()), null);
      }
    } catch (TransportFailure e) {
      connection.end(e);
    }
    return connected;
  }

  private void connect(IbEndpoint.End peer, Deadline by) {
    deadline = by;
    if (connection.hasFailed()) {
      return;
    }
    if (Arrays.compareUnsigned(token, peer.token()) <= 0) {
      try {
        link = context.port().connect(peer.address(), peer.token(), this);
      } catch (Throwable e) {
        String message = "can't connect to rank %s: %s";
        connection.fail(message.formatted(connection.remoteRank(), e.getMessage()), e);
      }
    }
    deliver();
  }

  @Override
  public RdmaOptions options() {
    return options;
  }

  @Override
  public void requested(VerbsLink incoming) {
    if (link == null) {
      link = incoming;
    } else {
      echo = incoming;
    }
  }

  @Override
  public void established(VerbsLink which) {
    if (which == link && !connection.hasFailed()) {
      established = true;
      deliver();
    }
  }

  private void deliver() {
    if (!established || deadline == null || delivered || connection.hasFailed()) {
      return;
    }
    try {
      connection.open(link);
    } catch (Throwable e) {
      connection.fail("memory for signals can't be registered: " + e.getMessage(), e);
      return;
    }
    delivered = true;
    if (!connected.complete(connection)) {
      // A caller that cancelled may have seen it as delivered and not closed it.
      connection.close();
    }
  }

  @Override
  public void failed(VerbsLink which, String reason) {
    String message = "rank %s was not connected: %s";
    connection.fail(message.formatted(connection.remoteRank(), reason), null);
  }

  @Override
  public void disconnected(VerbsLink which) {
    if (which != echo) {
      connection.serveDisconnected();
    }
  }

  void checkDeadline() {
    if (isConnecting() && !connection.hasFailed() && deadline.expired()) {
      connection.end(connection.notConnected(deadline));
    }
  }

  /** Closes the queue pairs that exist. Idempotent. */
  void closeLinks() {
    if (link != null) {
      link.close();
    }
    if (echo != null) {
      echo.close();
    }
  }

  /** Fails the connect with that reason, unless it has ended. */
  void fail(FluxCclException reason) {
    connected.completeExceptionally(reason);
  }
}
