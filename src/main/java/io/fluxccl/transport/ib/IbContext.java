package io.fluxccl.transport.ib;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
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
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;

/** An RDMA device as one communicator uses it. */
final class IbContext implements TransportContext {
  private static final VerbsMemory[] NO_MEMORY = {};

  private final Transport transport;
  private final TransportEnvironment environment;
  private final Inet4Address address;
  private final long piece;
  private final SecureRandom random = new SecureRandom();
  private final IbAgent agent;
  private final VerbsPort port;

  /** Ends whose peer has not come yet. */
  private final List<IbConnection> expected = new CopyOnWriteArrayList<>();

  private final Set<IbConnection> connections = ConcurrentHashMap.newKeySet();
  private final Set<IbMemoryHandle> handles = ConcurrentHashMap.newKeySet();
  private final AtomicBoolean closed = new AtomicBoolean();

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
    this.agent =
        new IbAgent(
            "fluxccl-" + transport.name().toLowerCase(Locale.ROOT) + "-rank" + environment.rank());
    this.port = verbs.open(address, this::admit);
  }

  /**
   * Opens a device.
   *
   * @param address of the device
   * @param piece bytes of a registration, a power of two below 2 GiB
   * @throws TransportFailure if the device refuses
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
      throw new TransportFailure(
          environment.rank(),
          transport
              + " of rank "
              + environment.rank()
              + " can't be opened at "
              + address.getHostAddress()
              + ": "
              + e.getMessage(),
          e);
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
    requireOpen();
    Device device = buffer.device();
    boolean onHost = device.kind() == DeviceKind.HOST;
    if (device != environment.device() && !onHost) {
      throw new InvalidUsage(
          transport
              + " of rank "
              + rank()
              + " takes memory of "
              + environment.device()
              + " or of a HOST device; this is memory of a "
              + device.kind()
              + " device");
    }
    buffer.retain();
    List<VerbsMemory> pieces = new ArrayList<>();
    try {
      for (long offset = 0; offset < buffer.size(); offset += piece) {
        int length = (int) Math.min(piece, buffer.size() - offset);
        pieces.add(port.register(buffer.address() + offset, length));
      }
    } catch (IOException e) {
      pieces.forEach(VerbsMemory::close);
      buffer.release();
      throw new TransportFailure(
          rank(),
          transport
              + " of rank "
              + rank()
              + " can't register "
              + buffer.size()
              + " bytes of its "
              + device.kind()
              + " device: "
              + e.getMessage()
              + (onHost
                  ? "; is the limit of locked memory high enough (ulimit -l)?"
                  : "; a GPU's memory needs nvidia-peermem (modprobe nvidia-peermem), or use"
                      + " ETHERNET"),
          e);
    }
    int[] keys = pieces.stream().mapToInt(VerbsMemory::remoteKey).toArray();
    return keep(
        new IbMemoryHandle(
            this,
            new IbMemoryCodec.Place(buffer.address(), piece, keys),
            buffer.size(),
            pieces.toArray(NO_MEMORY),
            onHost,
            buffer::release));
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    requireOpen();
    IbMemoryCodec.Place place = IbMemoryCodec.decode(wire, origin.size(), origin.rank());
    return keep(new IbMemoryHandle(this, place, origin.size(), NO_MEMORY, false, () -> {}));
  }

  private MemoryHandle keep(IbMemoryHandle handle) {
    handles.add(handle);
    if (closed.get()) {
      handle.close();
      requireOpen();
    }
    return handle;
  }

  void forget(IbMemoryHandle handle) {
    handles.remove(handle);
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    requireOpen();
    if (remoteRank < 0 || remoteRank >= environment.nRanks()) {
      throw new InvalidUsage(
          "remoteRank=" + remoteRank + "; give 0 to " + (environment.nRanks() - 1));
    }
    if (config.transport() != transport) {
      throw new InvalidUsage("endpoint for " + config.transport() + " asked of " + transport);
    }
    byte[] token = new byte[IbEndpointCodec.TOKEN_LENGTH];
    random.nextBytes(token);
    IbConnection connection = new IbConnection(this, remoteRank, tag, token, config.rdma());
    connections.add(connection);
    expected.add(connection);
    agent.execute(() -> agent.add(connection));
    if (closed.get()) {
      connection.close();
    }
    InetSocketAddress own = new InetSocketAddress(address, port.port());
    return new IbEndpoint(
        connection, IbEndpointCodec.encode(new IbEndpointCodec.End(rank(), tag, own, token)));
  }

  /**
   * The end whose token that is; it is expected no longer then. Takes the same time whichever token
   * it is, and however much of it is right.
   */
  private LinkEvents admit(byte[] privateData) {
    IbConnection found = null;
    if (privateData.length >= IbEndpointCodec.TOKEN_LENGTH) {
      // What follows the token is padding of the connection manager.
      byte[] token = java.util.Arrays.copyOf(privateData, IbEndpointCodec.TOKEN_LENGTH);
      for (IbConnection connection : expected) {
        if (MessageDigest.isEqual(connection.connector().token(), token)) {
          found = connection;
        }
      }
    }
    return found != null && expected.remove(found) ? found.connector() : null;
  }

  void forget(IbConnection connection) {
    expected.remove(connection);
    connections.remove(connection);
  }

  /** How many memories are registered or opened. For tests. */
  int openHandles() {
    return handles.size();
  }

  /** How many connections there are. For tests. */
  int openConnections() {
    return connections.size();
  }

  private void requireOpen() {
    if (closed.get()) {
      throw new InvalidUsage("the " + transport + " context of rank " + rank() + " is closed");
    }
  }

  @Override
  public void close() {
    if (!closed.compareAndSet(false, true)) {
      return;
    }
    connections.forEach(IbConnection::close);
    // Behind the closes above: by then no request is with the device, so all handles let go.
    agent.execute(
        () -> {
          try {
            Closing.all(handles);
          } finally {
            agent.end(port::close);
          }
        });
  }
}
