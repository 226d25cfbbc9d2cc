package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.tcp.PortRange;
import io.fluxccl.transport.ConnectedRanks;
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
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/** Two ranks of one JVM over real sockets of the loopback, and what a communicator would do. */
public final class Ranks implements ConnectedRanks {
  static final Duration LIMIT = Duration.ofSeconds(60);

  final List<Device> devices;
  private final Device host = HostDevice.create();
  final List<EthernetContext> contexts = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new CopyOnWriteArrayList<>();

  Ranks(NetworkStack stack) {
    this(stack, StagingPolicy.WHERE_NEEDED);
  }

  Ranks(NetworkStack stack, StagingPolicy policy) {
    this(stack, policy, HostDevice.create(), HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  Ranks(NetworkStack wanted, StagingPolicy policy, Device device0, Device device1) {
    NetworkStack stack = wanted == NetworkStack.EPOLL ? NetworkStack.choose() : wanted;
    devices = List.of(device0, device1);
    for (int rank = 0; rank < 2; rank++) {
      contexts.add(
          EthernetContext.open(environment(rank, devices.get(rank)), stack, PortRange.ANY, policy));
    }
  }

  /** Two ranks, by epoll or NIO, their memory staged or not. */
  public static Ranks of(boolean nio, boolean staged) {
    return new Ranks(
        nio ? NetworkStack.NIO : NetworkStack.EPOLL,
        staged ? StagingPolicy.ALWAYS : StagingPolicy.WHERE_NEEDED);
  }

  /** Two ranks by epoll, on GPUs 0 and 1, or both on the only one. */
  public static Ranks onGpus() {
    return onGpus(StagingPolicy.WHERE_NEEDED, 0, Math.min(1, CudaDriver.count() - 1));
  }

  /** Two ranks by epoll, on GPUs of those numbers. */
  static Ranks onGpus(StagingPolicy policy, int gpu0, int gpu1) {
    return new Ranks(NetworkStack.EPOLL, policy, CudaDevice.open(gpu0), CudaDevice.open(gpu1));
  }

  static TransportEnvironment environment(int rank, Device device) {
    return new TransportEnvironment(rank, 2, 1, rank, device, InetAddress.getLoopbackAddress());
  }

  /** Whether there is memory that is staged. */
  boolean areStaged() {
    return context(0).staging() != null;
  }

  @Override
  public Duration limit() {
    return LIMIT;
  }

  @Override
  public EthernetContext context(int rank) {
    return contexts.get(rank);
  }

  @Override
  public List<Connection> connect(int a, int b, int tag) throws Exception {
    Endpoint endA = endpoint(a, b, tag);
    Endpoint endB = endpoint(b, a, tag);
    CompletableFuture<Connection> toB = endA.connect(endB.wire(), Deadline.after(LIMIT));
    CompletableFuture<Connection> toA = endB.connect(endA.wire(), Deadline.after(LIMIT));
    return List.of(get(toB), get(toA));
  }

  @Override
  public Endpoint endpoint(int rank, int remoteRank, int tag) {
    return context(rank).createEndpoint(remoteRank, tag, EndpointConfig.of(Transport.ETHERNET));
  }

  static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(LIMIT.toMillis(), TimeUnit.MILLISECONDS);
  }

  DeviceBuffer allocate(int rank, long size) {
    DeviceBuffer buffer = devices.get(rank).allocate(size);
    buffers.add(buffer);
    return buffer;
  }

  /** Memory that is on the host whatever the rank's device is. */
  DeviceBuffer allocateOnHost(int rank, long size) {
    if (devices.get(rank).kind() == DeviceKind.HOST) {
      return allocate(rank, size);
    }
    DeviceBuffer buffer = host.allocate(size);
    buffers.add(buffer);
    return buffer;
  }

  @Override
  public RegisteredMemory memory(int rank, long size) {
    return register(rank, allocate(rank, size));
  }

  RegisteredMemory register(int rank, DeviceBuffer buffer) {
    MemoryHandle handle = context(rank).register(buffer);
    return RegisteredMemory.local(
        new MemoryOrigin(rank, 1, rank, buffer.address(), buffer.size()),
        buffer,
        Map.of(Transport.ETHERNET, handle));
  }

  @Override
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
    devices.forEach(Device::close);
    host.close();
  }
}
