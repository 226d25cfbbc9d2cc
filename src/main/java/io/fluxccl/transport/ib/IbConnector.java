package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * How one end of a connection comes together with the other: one queue pair for both, for which the
 * end with the lesser token calls and presents the other's. An end that is its own peer does both.
 * All of it happens on the agent's thread, but for {@link #connect(byte[], Deadline)}.
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
   * Of a new end.
   *
   * @param token what proves that a request is for this end
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

  /** Whether the connection has been handed out. */
  boolean isDelivered() {
    return delivered;
  }

  /** Whether the agent should look for connection events often. Called by the agent. */
  boolean isConnecting() {
    return deadline != null && !delivered;
  }

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline by) {
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          new InvalidUsage(connection + ": connect was called before; make a new endpoint"));
    }
    // A caller that cancels gives up this end.
    connected.whenComplete((done, error) -> connection.giveUp());
    IbEndpointCodec.End peer;
    try {
      peer = IbEndpointCodec.decode(remoteWire, connection.remoteRank());
    } catch (TransportFailure e) {
      connection.end(e);
      return connected;
    }
    if (peer.tag() != connection.tag()) {
      connection.fail("rank " + connection.remoteRank() + " connects with tag=" + peer.tag(), null);
      return connected;
    }
    context.agent().execute(() -> connect(peer, by));
    return connected;
  }

  private void connect(IbEndpointCodec.End peer, Deadline by) {
    deadline = by;
    if (connection.hasFailed()) {
      return;
    }
    if (Arrays.compareUnsigned(token, peer.token()) <= 0) {
      try {
        link = context.port().connect(peer.address(), peer.token(), this);
      } catch (Throwable e) {
        connection.fail(
            "rank " + connection.remoteRank() + " can't be called: " + e.getMessage(), e);
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
      // Whoever cancelled it may have taken it for delivered.
      connection.close();
    }
  }

  @Override
  public void failed(VerbsLink which, String what) {
    connection.fail("rank " + connection.remoteRank() + " was not connected: " + what, null);
  }

  @Override
  public void disconnected(VerbsLink which) {
    if (which != echo) {
      connection.serveDisconnected();
    }
  }

  void checkDeadline() {
    if (!isConnecting() || connection.hasFailed() || !deadline.expired()) {
      return;
    }
    connection.end(
        new Timeout(
            connection.remoteRank(),
            connection
                + " was not connected within "
                + deadline.timeout().toMillis()
                + " ms; does rank "
                + connection.remoteRank()
                + " connect to rank "
                + context.rank()
                + " with the same tag, and does the network carry RDMA (rping)?"));
  }

  /** Closes what there is of queue pairs. Idempotent. */
  void closeLinks() {
    if (link != null) {
      link.close();
    }
    if (echo != null) {
      echo.close();
    }
  }

  /** Ends the attempt with that reason, if it has not ended. */
  void fail(FluxCclException reason) {
    connected.completeExceptionally(reason);
  }
}
