// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.time.Duration;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;

/**
 * All transports, with unconnected connections. Closing a context or connection fails if a failure
 * was set. Records the closed objects in order: {@code SHM}, {@code connection of SHM}.
 */
final class UncloseableTransports implements TransportProvider {
  final List<String> closed = new CopyOnWriteArrayList<>();
  private final Map<Transport, Throwable> contextFailures = new EnumMap<>(Transport.class);
  private final Map<Transport, Throwable> connectionFailures = new EnumMap<>(Transport.class);

  /** Sets the failure that closing that context throws. */
  void refuse(Transport context, Throwable failure) {
    contextFailures.put(context, failure);
  }

  /** Sets the failure that closing connections of that transport throws. */
  void refuseConnections(Transport transport, Throwable failure) {
    connectionFailures.put(transport, failure);
  }

  private void close(String what, Throwable failure) {
    closed.add(what);
    if (failure instanceof Error) {
      throw (Error) failure;
    }
    if (failure != null) {
      throw (RuntimeException) failure;
    }
  }

  @Override
  public Set<Transport> transports() {
    return EnumSet.allOf(Transport.class);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    return Optional.empty();
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    return new Context(transport);
  }

  private final class Context implements TransportContext {
    private final Transport transport;

    Context(Transport transport) {
      this.transport = transport;
    }

    @Override
    public Transport transport() {
      return transport;
    }

    @Override
    public MemoryHandle register(DeviceBuffer buffer) {
      throw new UnsupportedOperationException("register");
    }

    @Override
    public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
      throw new UnsupportedOperationException("open");
    }

    @Override
    public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
      return new End(new Link(transport, remoteRank, tag));
    }

    @Override
    public void close() {
      UncloseableTransports.this.close(transport.name(), contextFailures.get(transport));
    }
  }

  private record End(Connection link) implements Endpoint {
    @Override
    public byte[] wire() {
      return new byte[0];
    }

    @Override
    public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
      return CompletableFuture.completedFuture(link);
    }

    @Override
    public void close() {
      link.close();
    }
  }

  private final class Link implements Connection {
    private final Transport transport;
    private final int remoteRank;
    private final int tag;

    Link(Transport transport, int remoteRank, int tag) {
      this.transport = transport;
      this.remoteRank = remoteRank;
      this.tag = tag;
    }

    @Override
    public Transport transport() {
      return transport;
    }

    @Override
    public int remoteRank() {
      return remoteRank;
    }

    @Override
    public int tag() {
      return tag;
    }

    @Override
    public Connection write(
        RegisteredMemory target,
        long targetOffset,
        RegisteredMemory source,
        long sourceOffset,
        long size) {
      throw new UnsupportedOperationException("write");
    }

    @Override
    public Connection updateAndSync(
        RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
      throw new UnsupportedOperationException("updateAndSync");
    }

    @Override
    public long beginFlush() {
      throw new UnsupportedOperationException("beginFlush");
    }

    @Override
    public long flushedTicket() {
      return 0;
    }

    @Override
    public CompletableFuture<Void> flush(Duration timeout) {
      throw new UnsupportedOperationException("flush");
    }

    @Override
    public FluxCclException failure() {
      return null;
    }

    @Override
    public CompletableFuture<FluxCclException> failed() {
      return new CompletableFuture<>();
    }

    @Override
    public void close() {
      UncloseableTransports.this.close(
          "connection of " + transport, connectionFailures.get(transport));
    }
  }
}
