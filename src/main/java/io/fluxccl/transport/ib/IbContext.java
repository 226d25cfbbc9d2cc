// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DmaBuf;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The RDMA transport of one communicator, over one device. */
final class IbContext implements TransportContext {
  private final Transport transport;
  private final TransportEnvironment environment;
  private final RdmaDevices.Device device;
  private final long piece;
  private final SecureRandom random = new SecureRandom();
  private final IbAgent agent;
  private final Verbs.Port port;
  private final PortAddress address;
  private final Lifecycle lifecycle;
  private final Set<IbConnection> connections = ConcurrentHashMap.newKeySet();
  private final Set<IbMemoryHandle> handles = ConcurrentHashMap.newKeySet();

  /** Registers one piece of a buffer. */
  private interface Call {
    Verbs.Memory register(long offset, int length) throws IOException;
  }

  private IbContext(
      Transport transport,
      TransportEnvironment environment,
      Verbs verbs,
      RdmaDevices.Device device,
      long piece)
      throws IOException {
    this.transport = transport;
    this.environment = environment;
    this.device = device;
    this.piece = piece;
    this.lifecycle = new Lifecycle(Text.of("%s of rank %s", transport, environment.rank()));
    String name = transport.name().toLowerCase(Locale.ROOT);
    this.agent = new IbAgent(Text.of("fluxccl-%s-rank%s", name, environment.rank()));
    this.port = verbs.open(device.name(), device.port());
    this.address = new PortAddress(port.attributes(), device.gids());
  }

  /**
   * Opens a device.
   *
   * @param device the device and its port
   * @param piece the length in bytes of a registration, a power of two below 2 GiB
   * @throws TransportFailure if the device can't be opened
   */
  static IbContext open(
      Transport transport,
      TransportEnvironment environment,
      Verbs verbs,
      RdmaDevices.Device device,
      long piece) {
    try {
      IbContext context = new IbContext(transport, environment, verbs, device, piece);
      context.agent.start();
      return context;
    } catch (IOException e) {
      String message =
          Text.of(
              "%s of rank %s can't be opened, port %d of %s: %s",
              transport, environment.rank(), device.port(), device.name(), e.getMessage());
      throw new TransportFailure(environment.rank(), message, e);
    }
  }

  @Override
  public Transport transport() {
    return transport;
  }

  int rank() {
    return environment.rank();
  }

  IbAgent agent() {
    return agent;
  }

  Verbs.Port port() {
    return port;
  }

  PortAddress address() {
    return address;
  }

  @Override
  public MemoryHandle register(DeviceBuffer buffer) {
    lifecycle.checkOpen();
    Device device = buffer.device();
    boolean onHost = device.kind() == DeviceKind.HOST;
    if (device != environment.device() && !onHost) {
      throw InvalidUsage.of(
          "%s of rank %s takes memory of %s or of a HOST device; this is memory of a %s device",
          transport, rank(), environment.device(), device.kind());
    }
    buffer.retain();
    Verbs.Memory[] pieces =
        Closing.onFailure(buffer::release, () -> registerPieces(buffer, onHost));
    int[] keys = Arrays.stream(pieces).mapToInt(Verbs.Memory::remoteKey).toArray();
    IbMemoryHandle.Place place = new IbMemoryHandle.Place(buffer.address(), piece, keys);
    return keep(new IbMemoryHandle(this, place, buffer.size(), pieces, onHost, buffer::release));
  }

  private Verbs.Memory[] registerPieces(DeviceBuffer buffer, boolean onHost) {
    try {
      return onHost ? byAddress(buffer) : ofGpu(buffer);
    } catch (IOException e) {
      String advice =
          onHost
              ? "is the limit of locked memory high enough (ulimit -l)?"
              : "GPU memory needs dma-buf or nvidia-peermem (modprobe nvidia-peermem); else use"
                  + " ETHERNET";
      String message =
          Text.of(
              "%s of rank %s can't register %s bytes of its %s device: %s; %s",
              transport, rank(), buffer.size(), buffer.device().kind(), e.getMessage(), advice);
      throw new TransportFailure(rank(), message, e);
    }
  }

  /**
   * Registers memory of a GPU by a dma-buf where the GPU and the network device support it,
   * otherwise by its address, which needs nvidia-peermem.
   */
  private Verbs.Memory[] ofGpu(DeviceBuffer buffer) throws IOException {
    String noDmaBuf;
    try {
      Optional<Verbs.Memory[]> pieces = byDmaBuf(buffer);
      if (pieces.isPresent()) {
        return pieces.get();
      }
      noDmaBuf = "the GPU's driver exports no dma-bufs";
    } catch (IOException | DeviceFailure e) {
      noDmaBuf = e.getMessage();
    }
    try {
      return byAddress(buffer);
    } catch (IOException e) {
      throw new IOException(Text.of("%s; by dma-buf: %s", e.getMessage(), noDmaBuf), e);
    }
  }

  private Optional<Verbs.Memory[]> byDmaBuf(DeviceBuffer buffer) throws IOException {
    Optional<DmaBuf> exported = buffer.exportDmaBuf();
    if (exported.isEmpty()) {
      return Optional.empty();
    }
    // The registrations keep the memory: the descriptor is not needed after them.
    try (DmaBuf dmaBuf = exported.get()) {
      return Optional.of(
          pieces(
              buffer,
              (offset, length) ->
                  port.registerDmaBuf(
                      dmaBuf.descriptor(),
                      dmaBuf.offset() + offset,
                      buffer.address() + offset,
                      length)));
    }
  }

  private Verbs.Memory[] byAddress(DeviceBuffer buffer) throws IOException {
    return pieces(buffer, (offset, length) -> port.register(buffer.address() + offset, length));
  }

  private Verbs.Memory[] pieces(DeviceBuffer buffer, Call call) throws IOException {
    List<Verbs.Memory> pieces = new ArrayList<>();
    try {
      for (long offset = 0; offset < buffer.size(); offset += piece) {
        pieces.add(call.register(offset, (int) Math.min(piece, buffer.size() - offset)));
      }
      return pieces.toArray(Verbs.Memory[]::new);
    } catch (IOException | RuntimeException | Error e) {
      pieces.forEach(Verbs.Memory::close);
      throw e;
    }
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    lifecycle.checkOpen();
    IbMemoryHandle.Place place = IbMemoryHandle.Place.decode(wire, origin.size(), origin.rank());
    return keep(new IbMemoryHandle(this, place, origin.size()));
  }

  private MemoryHandle keep(IbMemoryHandle handle) {
    handles.add(handle);
    if (lifecycle.isClosed()) {
      handle.close();
      lifecycle.checkOpen();
    }
    return handle;
  }

  void forget(IbMemoryHandle handle) {
    handles.remove(handle);
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    lifecycle.checkOpen();
    environment.checkPeer(remoteRank);
    config.checkTransport(transport);
    IbConnection connection = newConnection(remoteRank, tag, config.rdma());
    connections.add(connection);
    agent.execute(() -> agent.add(connection));
    if (lifecycle.isClosed()) {
      connection.close();
    }
    return new IbEndpoint(connection, connection.end());
  }

  private IbConnection newConnection(int remoteRank, int tag, RdmaOptions options) {
    try {
      Verbs.Link link = port.createLink(options);
      try {
        int packet = random.nextInt(IbEndpoint.End.MAX_NUMBER + 1);
        return new IbConnection(this, remoteRank, tag, packet, link, options);
      } catch (IOException | RuntimeException | Error e) {
        link.close();
        throw e;
      }
    } catch (IOException e) {
      String message =
          Text.of(
              "%s of rank %s can't make a queue pair for rank %s (tag %s): %s",
              transport, rank(), remoteRank, tag, e.getMessage());
      throw new TransportFailure(rank(), message, e);
    }
  }

  void forget(IbConnection connection) {
    connections.remove(connection);
  }

  /** Returns the number of memories that are registered or opened. For tests. */
  int openHandles() {
    return handles.size();
  }

  /** Returns the number of connections. For tests. */
  int openConnections() {
    return connections.size();
  }

  @Override
  public void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    connections.forEach(IbConnection::close);
    // This task runs after the tasks of these closes. By then the device has no request of any
    // connection, so closing a handle deregisters it.
    agent.execute(this::closeMemories);
  }

  private void closeMemories() {
    try {
      Closing.all(handles);
    } finally {
      agent.end(this::closePort);
    }
  }

  private void closePort() {
    port.close();
    lifecycle.closeChildren();
  }
}
