// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One rank's objects in the order in which a program for MSCCL++ makes them. */
final class MscclppRank implements AutoCloseable {
  static final Duration TIMEOUT = Duration.ofSeconds(30);

  final LocalRank on;
  final Communicator communicator;
  final int rank;
  final int nRanks;
  final DeviceBuffer memory;
  final Map<Integer, Connection> connections = new HashMap<>();
  final Map<Integer, RegisteredMemory> remoteMemory = new HashMap<>();
  RegisteredMemory localMemory;
  ProxyService proxyService;

  /** In device memory: handles by rank, this rank's own and those that can't be: zeros. */
  DeviceBuffer proxyChannels;

  DeviceBuffer smChannels;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();

  MscclppRank(LocalRank on, long bytes) {
    this.on = on;
    this.communicator = on.communicator();
    this.rank = on.rank();
    this.nRanks = on.nRanks();
    this.memory = on.device().allocate(bytes);
    setUpFullMeshConnections();
    registerMemoryPairs();
    buildProxyChannels();
    buildSmChannels();
    proxyService.startProxy();
  }

  private boolean isOnThisHost(int peer) {
    Bootstrap bootstrap = communicator.bootstrap();
    return bootstrap.hostHash(peer) == bootstrap.hostHash(rank);
  }

  private void setUpFullMeshConnections() {
    Map<Integer, NonblockingFuture<Connection>> futures = new HashMap<>();
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        Transport transport = isOnThisHost(peer) ? Transport.CUDA_IPC : Transport.ETHERNET;
        futures.put(peer, communicator.connectOnSetup(peer, 0, transport));
      }
    }
    communicator.setup().join();
    futures.forEach((peer, future) -> connections.put(peer, future.join()));
  }

  private void registerMemoryPairs() {
    TransportFlags transports = TransportFlags.of(Transport.CUDA_IPC, Transport.ETHERNET);
    localMemory = communicator.registerMemory(memory, transports);
    Map<Integer, NonblockingFuture<RegisteredMemory>> futures = new HashMap<>();
    for (int peer : connections.keySet()) {
      communicator.sendMemoryOnSetup(localMemory, peer, 0);
      futures.put(peer, communicator.recvMemoryOnSetup(peer, 0));
    }
    communicator.setup().join();
    futures.forEach((peer, future) -> remoteMemory.put(peer, future.join()));
  }

  private void buildProxyChannels() {
    proxyService = new ProxyService(communicator);
    Map<Integer, Integer> semaphoreIds = new HashMap<>();
    for (Map.Entry<Integer, Connection> link : connections.entrySet()) {
      int id = proxyService.buildAndAddSemaphore(communicator, link.getValue());
      semaphoreIds.put(link.getKey(), id);
    }
    communicator.setup().join();
    int source = proxyService.addMemory(localMemory);
    List<ProxyChannel> byRank = new ArrayList<>(Collections.nCopies(nRanks, null));
    semaphoreIds.forEach(
        (peer, semaphore) -> {
          int target = proxyService.addMemory(remoteMemory.get(peer));
          byRank.set(peer, proxyService.proxyChannel(semaphore, target, source));
        });
    proxyChannels = DeviceHandle.upload(communicator.device(), byRank);
  }

  private void buildSmChannels() {
    List<SmChannel> byRank = new ArrayList<>(Collections.nCopies(nRanks, null));
    for (int peer : connections.keySet()) {
      if (isOnThisHost(peer)) {
        SmDevice2DeviceSemaphore semaphore =
            new SmDevice2DeviceSemaphore(communicator, connections.get(peer));
        semaphores.add(semaphore);
        byRank.set(peer, new SmChannel(semaphore, remoteMemory.get(peer), memory, memory));
      }
    }
    communicator.setup().join();
    // A kernel that takes an array wants some address even if no peer is on this host.
    smChannels =
        semaphores.isEmpty()
            ? communicator.device().allocate(Long.BYTES)
            : DeviceHandle.upload(communicator.device(), byRank);
  }

  void barrier() {
    communicator.bootstrap().barrier(Deadline.after(TIMEOUT)).join();
  }

  @Override
  public void close() {
    proxyService.close();
    proxyChannels.close();
    smChannels.close();
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
    remoteMemory.values().forEach(RegisteredMemory::close);
    localMemory.close();
    connections.values().forEach(Connection::close);
    memory.close();
  }
}
