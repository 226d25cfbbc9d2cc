package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Two ranks of one JVM over real sockets of the loopback, and what a communicator would do. */
public final class Ranks implements AutoCloseable {
  static final Duration LIMIT = Duration.ofSeconds(20);

  final Device device = HostDevice.create();
  final List<EthernetContext> contexts = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  Ranks(NetworkStack wanted) {
    NetworkStack stack = wanted == NetworkStack.EPOLL ? NetworkStack.choose() : wanted;
    for (int rank = 0; rank < 2; rank++) {
      contexts.add(EthernetContext.open(environment(rank), stack, PortRange.ANY));
    }
  }

  /** Two ranks, by epoll or NIO. */
  public static Ranks of(boolean nio) {
    return new Ranks(nio ? NetworkStack.NIO : NetworkStack.EPOLL);
  }

  static TransportEnvironment environment(int rank) {
    return new TransportEnvironment(
        rank, 2, 1, rank, HostDevice.create(), InetAddress.getLoopbackAddress());
  }

  EthernetContext context(int rank) {
    return contexts.get(rank);
  }

  /** A connection of rank 0 to rank 1 and its other end. */
  public List<Connection> connect(int tag) throws Exception {
    return connect(0, 1, tag);
  }

  List<Connection> connect(int a, int b, int tag) throws Exception {
    Endpoint endA = endpoint(a, b, tag);
    Endpoint endB = endpoint(b, a, tag);
    CompletableFuture<Connection> toB = endA.connect(endB.wire(), Deadline.after(LIMIT));
    CompletableFuture<Connection> toA = endB.connect(endA.wire(), Deadline.after(LIMIT));
    return List.of(get(toB), get(toA));
  }

  Endpoint endpoint(int rank, int remoteRank, int tag) {
    return context(rank).createEndpoint(remoteRank, tag, EndpointConfig.of(Transport.ETHERNET));
  }

  static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(LIMIT.toMillis(), TimeUnit.MILLISECONDS);
  }

  DeviceBuffer allocate(long size) {
    DeviceBuffer buffer = device.allocate(size);
    buffers.add(buffer);
    return buffer;
  }

  /** New registered memory of a rank. */
  public RegisteredMemory memory(int rank, long size) {
    return register(rank, allocate(size));
  }

  RegisteredMemory register(int rank, DeviceBuffer buffer) {
    MemoryHandle handle = context(rank).register(buffer);
    return RegisteredMemory.local(
        new MemoryOrigin(rank, 1, rank, buffer.address(), buffer.size()),
        buffer,
        Map.of(Transport.ETHERNET, handle));
  }

  /** A rank's memory as the other rank sees it. */
  public RegisteredMemory seenByPeer(RegisteredMemory owned) {
    return seenByPeer(owned, owned.handle(Transport.ETHERNET).wire(), owned.size());
  }

  RegisteredMemory seenByPeer(RegisteredMemory owned, byte[] wire, long size) {
    MemoryOrigin origin = new MemoryOrigin(owned.rank(), 1, owned.rank(), 1, size);
    MemoryHandle opened = context(1 - owned.rank()).open(wire, origin);
    return RegisteredMemory.remote(
        origin, TransportFlags.of(Transport.ETHERNET), Map.of(Transport.ETHERNET, opened));
  }

  @Override
  public void close() throws Exception {
    for (EthernetContext context : contexts) {
      context.close();
      context.loop().terminationFuture().await(LIMIT.toMillis());
    }
    buffers.forEach(DeviceBuffer::close);
  }
}
