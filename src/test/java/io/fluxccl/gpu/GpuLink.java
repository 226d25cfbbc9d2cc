// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;

/**
 * One rank's connection to its peer with a buffer at each end, and channels over it. Both ends make
 * the same ones in the same order.
 */
public final class GpuLink {
  public final GpuRank rank;
  public final Connection connection;
  public final DeviceBuffer buffer;
  public final RegisteredMemory local;
  public final RegisteredMemory remote;

  private GpuLink(
      GpuRank rank,
      Connection connection,
      DeviceBuffer buffer,
      RegisteredMemory local,
      RegisteredMemory remote) {
    this.rank = rank;
    this.connection = connection;
    this.buffer = buffer;
    this.local = local;
    this.remote = remote;
  }

  public static GpuLink over(GpuRank rank, Transport transport, long bytes) {
    return over(rank, transport, rank.allocate(bytes), 0);
  }

  public static GpuLink over(GpuRank rank, Transport transport, DeviceBuffer buffer, int tag) {
    RegisteredMemory local =
        rank.own(rank.communicator().registerMemory(buffer, TransportFlags.of(transport)));
    NonblockingFuture<Connection> connection =
        rank.communicator().connectOnSetup(rank.peer(), tag, EndpointConfig.of(transport));
    rank.communicator().sendMemoryOnSetup(local, rank.peer(), tag);
    NonblockingFuture<RegisteredMemory> remote =
        rank.communicator().recvMemoryOnSetup(rank.peer(), tag);
    rank.communicator().setup().join();
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
    int semaphore = service.buildAndAddSemaphore(rank.communicator(), connection);
    rank.communicator().setup().join();
    int target = service.addMemory(remote);
    int source = service.addMemory(local);
    return new Proxied(service, service.proxyChannel(semaphore, target, source));
  }

  /** A proxy channel and the service that serves it. */
  public record Proxied(ProxyService service, ProxyChannel channel) {
    public Proxied start() {
      service.startProxy();
      return this;
    }
  }
}
