// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.tcp.PortRange;
import io.fluxccl.tls.Tls;
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
import io.fluxccl.transport.plugin.NetChoice;
import io.fluxccl.transport.plugin.NetTransport;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Predicate;
import org.awaitility.Awaitility;

/** Two ranks of one JVM over a network plugin, and what a communicator would do. */
public final class NetRanks implements ConnectedRanks {
  static final Duration LIMIT = Duration.ofSeconds(60);

  final List<NetContext> contexts = new ArrayList<>();
  final List<Device> devices;
  private final Device host = HostDevice.create();
  private boolean checksums;
  private final List<DeviceBuffer> buffers = new CopyOnWriteArrayList<>();

  /** Closes the devices when it is closed. */
  private NetRanks(List<Device> devices, Function<TransportEnvironment, NetContext> opener) {
    this.devices = devices;
    for (int rank = 0; rank < 2; rank++) {
      contexts.add(opener.apply(environment(rank, devices.get(rank))));
    }
  }

  NetRanks(NetChoice choice) {
    this(choice, HostDevice.create(), HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  NetRanks(NetChoice choice, Device device0, Device device1) {
    this(List.of(device0, device1), environment -> NetTransport.open(choice, environment));
  }

  /** On the host over the first device of a plugin, which it closes when it is closed. */
  NetRanks(NetPlugin plugin) {
    this(plugin, 1);
  }

  /** As {@link #NetRanks(NetPlugin)}, with this number of rails over the device. */
  NetRanks(NetPlugin plugin, int rails) {
    this(plugin, rails, new AtomicInteger(2));
  }

  private NetRanks(NetPlugin plugin, int rails, AtomicInteger users) {
    this(
        List.of(HostDevice.create(), HostDevice.create()),
        environment -> open(environment, plugin, rails, () -> closeAfterLast(users, plugin)));
  }

  private static void closeAfterLast(AtomicInteger users, NetPlugin plugin) {
    if (users.decrementAndGet() == 0) {
      plugin.close();
    }
  }

  static NetContext open(
      TransportEnvironment environment, NetPlugin plugin, int rails, AutoCloseable lease) {
    return new NetContext(Transport.NET, environment, plugin, lease, new int[rails], null);
  }

  /** Two ranks over the built-in TCP network of the loopback, on GPUs 0 and 1 or on the host. */
  public static NetRanks overTcp(boolean gpus) {
    NetChoice choice = new NetChoice("fluxccl", "none", null, false);
    return gpus
        ? new NetRanks(choice, CudaDevice.open(0), CudaDevice.open(1))
        : new NetRanks(choice);
  }

  /** Two ranks over ETHERNET, on the host; its memory staged or not. */
  public static NetRanks ethernet(boolean staged) {
    return ethernet(staged ? buffer -> true : null);
  }

  /** Two ranks over ETHERNET, on the host, with TLS. */
  static NetRanks ethernetOverTls() {
    return ethernet(null, HostDevice.create(), HostDevice.create(), Optional.of(Tls.selfSigned()));
  }

  static NetRanks ethernet(Predicate<DeviceBuffer> alsoStaged) {
    return ethernet(alsoStaged, HostDevice.create(), HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  static NetRanks ethernet(Predicate<DeviceBuffer> alsoStaged, Device device0, Device device1) {
    return ethernet(alsoStaged, device0, device1, Optional.empty());
  }

  private static NetRanks ethernet(
      Predicate<DeviceBuffer> alsoStaged, Device device0, Device device1, Optional<Tls> tls) {
    return new NetRanks(
        List.of(device0, device1),
        environment -> EthernetTransport.open(environment, PortRange.ANY, alsoStaged, tls));
  }

  /** Two ranks over ETHERNET, on GPUs 0 and 1, or both on the only one. */
  public static NetRanks ethernetOnGpus() {
    return ethernetOnGpus(0, Math.min(1, CudaDriver.count() - 1));
  }

  /** Two ranks over ETHERNET, on GPUs of those numbers. */
  static NetRanks ethernetOnGpus(int gpu0, int gpu1) {
    return ethernet(null, CudaDevice.open(gpu0), CudaDevice.open(gpu1));
  }

  static TransportEnvironment environment(int rank, Device device) {
    return new TransportEnvironment(rank, 2, 1, rank, device, InetAddress.getLoopbackAddress());
  }

  /** Gives the messages of connections made from now on checksums, or none. */
  public NetRanks withChecksums(boolean on) {
    checksums = on;
    return this;
  }

  Transport transport() {
    return contexts.get(0).transport();
  }

  /** Ends a rank's connections without a word, as the death of its process would. */
  void sever(int rank) {
    NetAgent agent = context(rank).agent();
    agent.execute(
        () -> {
          for (NetConnection connection : agent.connections()) {
            connection.breakOff();
          }
        });
  }

  @Override
  public Duration limit() {
    return LIMIT;
  }

  @Override
  public NetContext context(int rank) {
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
    EndpointConfig config = EndpointConfig.of(transport()).withChecksums(checksums);
    return context(rank).createEndpoint(remoteRank, tag, config);
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
        Map.of(transport(), handle));
  }

  @Override
  public RegisteredMemory seenByPeer(RegisteredMemory owned) {
    return seenByPeer(owned, owned.handle(transport()).wire(), owned.size());
  }

  RegisteredMemory seenByPeer(RegisteredMemory owned, byte[] wire, long size) {
    MemoryOrigin origin = new MemoryOrigin(owned.rank(), 1, owned.rank(), 1, size);
    MemoryHandle opened = context(1 - owned.rank()).open(wire, origin);
    return RegisteredMemory.remote(
        origin, TransportFlags.of(transport()), Map.of(transport(), opened));
  }

  @Override
  public void close() {
    contexts.forEach(NetContext::close);
    Awaitility.await()
        .atMost(LIMIT)
        .until(() -> contexts.stream().allMatch(context -> context.agent().isTerminated()));
    buffers.forEach(DeviceBuffer::close);
    devices.forEach(Device::close);
    host.close();
  }
}
