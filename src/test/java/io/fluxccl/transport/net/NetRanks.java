// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Overlay;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.plugin.NetChoice;
import io.fluxccl.transport.plugin.NetTransport;
import io.fluxccl.transport.tcp.PortRange;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.awaitility.Awaitility;

/** Two ranks of one JVM over a network plugin, and what a communicator would do. */
public final class NetRanks extends ConnectedRanks {
  private final List<NetContext> contexts;
  private final Device host = HostDevice.create();

  /** Buffers that are not staged though the device is the host. */
  private Set<DeviceBuffer> direct = Set.of();

  private boolean checksums;

  /** Closes the devices when it is closed. */
  private NetRanks(
      Device device0, Device device1, Function<TransportEnvironment, NetContext> opener) {
    super(environments(device0, device1));
    contexts = environments(device0, device1).stream().map(opener).toList();
  }

  NetRanks(NetChoice choice) {
    this(choice, HostDevice.create(), HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  NetRanks(NetChoice choice, Device device0, Device device1) {
    this(device0, device1, environment -> NetTransport.open(choice, environment));
  }

  /** On the host over the first device of a plugin, which it closes when it is closed. */
  NetRanks(NetPlugin plugin) {
    this(plugin, 1);
  }

  /** As {@link #NetRanks(NetPlugin)}, with this number of rails over the device. */
  NetRanks(NetPlugin plugin, int rails) {
    this(HostDevice.create(), HostDevice.create(), sharing(plugin, rails));
  }

  private static Function<TransportEnvironment, NetContext> sharing(NetPlugin plugin, int rails) {
    AtomicInteger users = new AtomicInteger(2);
    AutoCloseable lease =
        () -> {
          if (users.decrementAndGet() == 0) {
            plugin.close();
          }
        };
    return environment -> open(environment, plugin, rails, lease);
  }

  /** Over two rails of a plugin, which stays open; stages all memory. */
  static NetRanks stagedOverTwoRails(NetPlugin plugin, Device device0, Device device1) {
    return new NetRanks(
        device0,
        device1,
        environment ->
            NetTransport.open(plugin, () -> {}, new int[2], environment, buffer -> true));
  }

  static NetContext open(
      TransportEnvironment environment, NetPlugin plugin, int rails, AutoCloseable lease) {
    return NetTransport.open(plugin, lease, new int[rails], environment, null);
  }

  /** Two ranks over the built-in TCP network of the loopback, on GPUs 0 and 1 or on the host. */
  public static NetRanks overTcp(boolean gpus) {
    NetChoice choice = new NetChoice("fluxccl", "none", null);
    return gpus
        ? new NetRanks(choice, CudaDevice.open(0), CudaDevice.open(1))
        : new NetRanks(choice);
  }

  /** Two ranks over the first device of a plugin's library, on GPUs 0 and 1. */
  static NetRanks onGpus(Path library) {
    return new NetRanks(
        new NetChoice(null, library.toString(), null), CudaDevice.open(0), CudaDevice.open(1));
  }

  /** Two ranks over ETHERNET, on the host; its memory staged or not. */
  public static NetRanks ethernet(boolean staged) {
    return ethernet(staged ? buffer -> true : null, HostDevice.create(), HostDevice.create());
  }

  /**
   * Two ranks over ETHERNET, on the host, to whose ends no system acknowledges what they send. The
   * system of a forwarder does so even after the test has cut the path.
   */
  static NetRanks ethernetUnanswered() {
    return new NetRanks(
        HostDevice.create(),
        HostDevice.create(),
        environment ->
            (NetContext)
                new EthernetTransport()
                    .open(Transport.ETHERNET, environment, NetRanks::unanswered));
  }

  private static LinkNetwork unanswered(LinkNetwork tcp) {
    Object changes =
        new Object() {
          Link listen(int peer, EndpointConfig config) {
            return unanswered((ResumableLink) tcp.listen(peer, config));
          }
        };
    return Overlay.of(LinkNetwork.class, changes, tcp);
  }

  private static ResumableLink unanswered(ResumableLink link) {
    Object changes =
        new Object() {
          CompletableFuture<Boolean> isAnswered() {
            return CompletableFuture.completedFuture(false);
          }
        };
    return Overlay.of(ResumableLink.class, changes, link);
  }

  /** Two ranks over ETHERNET, on the host, with TLS. */
  static NetRanks ethernetOverTls() {
    return ethernet(null, HostDevice.create(), HostDevice.create(), Optional.of(Tls.selfSigned()));
  }

  /** Closes the devices when it is closed. */
  static NetRanks ethernet(Predicate<DeviceBuffer> alsoStaged, Device device0, Device device1) {
    return ethernet(alsoStaged, device0, device1, Optional.empty());
  }

  private static NetRanks ethernet(
      Predicate<DeviceBuffer> alsoStaged, Device device0, Device device1, Optional<Tls> tls) {
    return new NetRanks(
        device0,
        device1,
        environment ->
            EthernetTransport.open(
                environment, PortRange.ANY, alsoStaged, tls, UnaryOperator.identity()));
  }

  /** Stages all memory but that of {@link #direct}; closes the devices when it is closed. */
  static NetRanks staged(Device device0, Device device1) {
    Set<DeviceBuffer> direct = ConcurrentHashMap.newKeySet();
    NetRanks ranks = ethernet(buffer -> !direct.contains(buffer), device0, device1);
    ranks.direct = direct;
    return ranks;
  }

  /** Two ranks over ETHERNET, on GPUs 0 and 1, or both on the only one. */
  public static NetRanks ethernetOnGpus() {
    return ethernetOnGpus(0, Math.min(1, CudaDriver.count() - 1));
  }

  /** Two ranks over ETHERNET, on GPUs of those numbers. */
  static NetRanks ethernetOnGpus(int gpu0, int gpu1) {
    return ethernet(null, CudaDevice.open(gpu0), CudaDevice.open(gpu1));
  }

  /** Gives the messages of connections made from now on checksums, or none. */
  public NetRanks withChecksums(boolean on) {
    checksums = on;
    return this;
  }

  @Override
  protected EndpointConfig config() {
    return super.config().withChecksums(checksums);
  }

  /** Ends a rank's connections without a word, as the death of its process would. */
  void sever(int rank) {
    NetAgent agent = context(rank).agent();
    agent.execute(() -> Arrays.stream(agent.connections()).forEach(NetConnection::breakOff));
  }

  /** Waits until a rank has this number of open connections. */
  void awaitOpen(int rank, int connections) {
    Awaitility.await().atMost(LIMIT).until(() -> context(rank).openConnections() == connections);
  }

  /** Blocks a rank's agent until the latch is counted down. */
  CountDownLatch block(int rank) throws Exception {
    return block(context(rank).agent()::execute);
  }

  /** Returns the result of a task on a rank's agent, after all that it was asked to do before. */
  <T> T onAgent(int rank, Supplier<T> task) throws Exception {
    return get(CompletableFuture.supplyAsync(task, context(rank).agent()::execute));
  }

  /** Returns memory of a host that no rank has registered. */
  public static OwnedMemory ownedMemory(DeviceBuffer buffer) {
    return new OwnedMemory(null, 1, buffer, NetMemoryHandle.Place.HOST);
  }

  @Override
  public NetContext context(int rank) {
    return contexts.get(rank);
  }

  /** Registers memory that is on the host and not staged, whatever the rank's device is. */
  RegisteredMemory direct(int rank, long size) {
    boolean onHost = device(rank).kind() == DeviceKind.HOST;
    DeviceBuffer buffer = onHost ? allocate(rank, size) : kept(host.allocate(size));
    direct.add(buffer);
    return register(rank, buffer);
  }

  @Override
  public void close() {
    contexts.forEach(NetContext::close);
    Awaitility.await()
        .atMost(LIMIT)
        .until(() -> contexts.stream().allMatch(context -> context.agent().isTerminated()));
    super.close();
    host.close();
  }
}
