// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.List;
import java.util.stream.IntStream;

/**
 * One rank's connection to its peer with a buffer at each end, and channels over it. Both ends make
 * the same ones in the same order.
 */
public record GpuLink(
    GpuRank rank,
    Connection connection,
    DeviceBuffer buffer,
    RegisteredMemory local,
    RegisteredMemory remote) {
  public static GpuLink over(GpuRank rank, Transport transport, long bytes) {
    Communicator communicator = rank.communicator();
    DeviceBuffer buffer = rank.allocate(bytes);
    RegisteredMemory local =
        rank.own(communicator.registerMemory(buffer, TransportFlags.of(transport)));
    NonblockingFuture<Connection> connection =
        communicator.connectOnSetup(rank.peer(), 0, EndpointConfig.of(transport));
    communicator.sendMemoryOnSetup(local, rank.peer(), 0);
    NonblockingFuture<RegisteredMemory> remote = communicator.recvMemoryOnSetup(rank.peer(), 0);
    communicator.setup().join();
    return new GpuLink(rank, connection.join(), buffer, local, rank.own(remote.join()));
  }

  /** From kernel to kernel. */
  public SmDevice2DeviceSemaphore semaphore() {
    SmDevice2DeviceSemaphore semaphore =
        rank.own(new SmDevice2DeviceSemaphore(rank.communicator(), connection));
    rank.communicator().setup().join();
    return semaphore;
  }

  /** To the peer's buffer, with the buffer here for its packets. */
  public SmChannel smChannel(DeviceBuffer source) {
    return new SmChannel(semaphore(), remote, source, buffer);
  }

  /** From the buffer here to the peer's, over a service of its own that is not started. */
  public Proxied proxied() {
    ProxyService service = rank.own(new ProxyService(rank.communicator()));
    return new Proxied(service, proxyChannels(service, 1).get(0));
  }

  /**
   * Channels from the buffer here to the peer's; the first semaphores of the service are theirs.
   */
  List<ProxyChannel> proxyChannels(ProxyService service, int count) {
    int[] semaphores =
        IntStream.range(0, count)
            .map(i -> service.buildAndAddSemaphore(rank.communicator(), connection))
            .toArray();
    rank.communicator().setup().join();
    int target = service.addMemory(remote);
    int source = service.addMemory(local);
    return IntStream.of(semaphores)
        .mapToObj(semaphore -> service.proxyChannel(semaphore, target, source))
        .toList();
  }

  /** A proxy channel and the service that serves it. */
  public record Proxied(ProxyService service, ProxyChannel channel) {
    public Proxied start() {
      service.startProxy();
      return this;
    }
  }
}
