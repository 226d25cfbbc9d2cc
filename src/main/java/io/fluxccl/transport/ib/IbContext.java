package io.fluxccl.transport.ib;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** The RDMA transport of one communicator, over one device. */
final class IbContext implements TransportContext {
  private final Transport transport;
  private final TransportEnvironment environment;
  private final Inet4Address address;
  private final long piece;
  private final SecureRandom random = new SecureRandom();
  private final IbAgent agent;
  private final VerbsPort port;
  private final Lifecycle lifecycle;

  /** Connections whose peer has not connected yet. */
  private final List<IbConnection> expected = new CopyOnWriteArrayList<>();

  private final Set<IbConnection> connections = ConcurrentHashMap.newKeySet();
  private final Set<IbMemoryHandle> handles = ConcurrentHashMap.newKeySet();

  private IbContext(
      Transport transport,
      TransportEnvironment environment,
      Verbs verbs,
      Inet4Address address,
      long piece)
      throws IOException {
    this.transport = transport;
    this.environment = environment;
    this.address = address;
    this.piece = piece;
    this.lifecycle = new Lifecycle("%s of rank %s".formatted(transport, environment.rank()));
    String name = transport.name().toLowerCase(Locale.ROOT);
    this.agent = new IbAgent("fluxccl-%s-rank%s".formatted(name, environment.rank()));
    this.port = verbs.open(address, this::admit);
  }

  /**
   * Opens a device.
   *
   * @param address the address of the device
   * @param piece the length in bytes of a registration, a power of two below 2 GiB
   * @throws TransportFailure if the device can't be opened
   */
  static IbContext open(
      Transport transport,
      TransportEnvironment environment,
      Verbs verbs,
      Inet4Address address,
      long piece) {
    try {
      IbContext context = new IbContext(transport, environment, verbs, address, piece);
      context.agent.start(context.port);
      return context;
    } catch (IOException e) {
      String message =
          "%s of rank %s can't be opened at %s: %s"
              .formatted(transport, environment.rank(), address.getHostAddress(), e.getMessage());
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

  VerbsPort port() {
    return port;
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
    VerbsMemory[] pieces = registerPieces(buffer, onHost);
    int[] keys = Arrays.stream(pieces).mapToInt(VerbsMemory::remoteKey).toArray();
    IbMemoryHandle.Place place = new IbMemoryHandle.Place(buffer.address(), piece, keys);
    return keep(new IbMemoryHandle(this, place, buffer.size(), pieces, onHost, buffer::release));
  }

  private VerbsMemory[] registerPieces(DeviceBuffer buffer, boolean onHost) {
    List<VerbsMemory> pieces = new ArrayList<>();
    try {
      for (long offset = 0; offset < buffer.size(); offset += piece) {
        int length = (int) Math.min(piece, buffer.size() - offset);
        pieces.add(port.register(buffer.address() + offset, length));
      }
      return pieces.toArray(VerbsMemory[]::new);
    } catch (IOException e) {
      pieces.forEach(VerbsMemory::close);
      buffer.release();
      String advice =
          onHost
              ? "is the limit of locked memory high enough (ulimit -l)?"
              : "a GPU's memory needs nvidia-peermem (modprobe nvidia-peermem), or use ETHERNET";
      String message =
          "%s of rank %s can't register %s bytes of its %s device: %s; %s"
              .formatted(
                  transport, rank(), buffer.size(), buffer.device().kind(), e.getMessage(), advice);
      throw new TransportFailure(rank(), message, e);
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
    byte[] token = new byte[IbEndpoint.End.TOKEN_LENGTH];
    random.nextBytes(token);
    IbConnection connection = new IbConnection(this, remoteRank, tag, token, config.rdma());
    connections.add(connection);
    expected.add(connection);
    agent.execute(() -> agent.add(connection));
    if (lifecycle.isClosed()) {
      connection.close();
    }
    InetSocketAddress own = new InetSocketAddress(address, port.port());
    return new IbEndpoint(connection, new IbEndpoint.End(rank(), tag, own, token));
  }

  /**
   * Returns the connection whose token a peer presents, and removes it from the expected ones.
   * Returns null if no connection has the token. The time of the comparisons does not depend on the
   * token presented.
   */
  private LinkEvents admit(byte[] privateData) {
    IbConnection found = null;
    if (privateData.length >= IbEndpoint.End.TOKEN_LENGTH) {
      // The connection manager pads the token.
      byte[] token = Arrays.copyOf(privateData, IbEndpoint.End.TOKEN_LENGTH);
      for (IbConnection connection : expected) {
        if (MessageDigest.isEqual(connection.token(), token)) {
          found = connection;
        }
      }
    }
    return found != null && expected.remove(found) ? found : null;
  }

  void forget(IbConnection connection) {
    expected.remove(connection);
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
