// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.common;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * One buffer of every rank, mapped by all others, and a channel to each. All ranks make it
 * together; blocks.
 */
public final class SampleMappedPeers implements AutoCloseable {
  private final DeviceBuffer buffer;
  private final DeviceBuffer handles;
  private final RegisteredMemory local;
  private final Map<Integer, Connection> connections = new HashMap<>();
  private final Map<Integer, RegisteredMemory> remote = new HashMap<>();
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();

  /**
   * Connects to all other ranks.
   *
   * @param communicator of all of them
   * @param buffer of this rank; stays the caller's
   * @param tag of the connections, to keep those of one communicator apart
   */
  public SampleMappedPeers(Communicator communicator, DeviceBuffer buffer, int tag) {
    int nRanks = communicator.bootstrap().nRanks();
    int rank = communicator.bootstrap().rank();
    this.buffer = buffer;
    this.local = communicator.registerMemory(buffer, TransportFlags.of(Transport.CUDA_IPC));
    Map<Integer, NonblockingFuture<Connection>> links = new HashMap<>();
    Map<Integer, NonblockingFuture<RegisteredMemory>> memories = new HashMap<>();
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        links.put(
            peer, communicator.connectOnSetup(peer, tag, EndpointConfig.of(Transport.CUDA_IPC)));
        communicator.sendMemoryOnSetup(local, peer, tag);
        memories.put(peer, communicator.recvMemoryOnSetup(peer, tag));
      }
    }
    communicator.setup().join();
    links.forEach((peer, link) -> connections.put(peer, link.join()));
    memories.forEach((peer, memory) -> remote.put(peer, memory.join()));

    List<SmChannel> channels = new ArrayList<>(Collections.nCopies(nRanks, null));
    for (Map.Entry<Integer, Connection> link : connections.entrySet()) {
      SmDevice2DeviceSemaphore semaphore =
          new SmDevice2DeviceSemaphore(communicator, link.getValue());
      semaphores.add(semaphore);
      channels.set(
          link.getKey(), new SmChannel(semaphore, remote.get(link.getKey()), buffer, buffer));
    }
    communicator.setup().join();
    this.handles = DeviceHandle.upload(communicator.device(), channels);
  }

  /** In device memory: an array of channels by rank, whose target is the peer's buffer. */
  public DeviceBuffer channels() {
    return handles;
  }

  /** This rank's buffer as connections write from it. */
  public RegisteredMemory local() {
    return local;
  }

  /** The other ranks' buffers, by rank. */
  public Map<Integer, RegisteredMemory> remote() {
    return remote;
  }

  /** The connections to the other ranks, by rank. */
  public Map<Integer, Connection> connections() {
    return connections;
  }

  /** This rank's buffer. */
  public DeviceBuffer buffer() {
    return buffer;
  }

  /** Lets go of the peers. No kernel may use the channels any more. */
  @Override
  public void close() {
    handles.close();
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
    remote.values().forEach(RegisteredMemory::close);
    local.close();
    connections.values().forEach(Connection::close);
  }
}
