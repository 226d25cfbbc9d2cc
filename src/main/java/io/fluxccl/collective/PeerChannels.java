package io.fluxccl.collective;

import io.fluxccl.channel.ChannelFailureListener;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;

/**
 * The channels of an all-pairs all-reduce: to every other rank one over its scratch memory and one
 * over its buffer, of which the peer waits for one signal each. SM channels where its memory is
 * mapped, proxy channels otherwise. All of it once for each lane: lanes work side by side and never
 * wait for each other.
 */
final class PeerChannels implements AutoCloseable {
  private final PeerMesh mesh;
  private final int lanes;
  private final ProxyService proxyService;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();
  private final SmDevice2DeviceSemaphore[][] semaphoreOf;
  private final int[][] proxySemaphoreOf;
  private DeviceBuffer buffer;
  private RegisteredMemory[] memories;
  private RegisteredMemory[] scratches;
  private int sourceId;
  private final int[] memoryIds;
  private final int[] scratchIds;

  PeerChannels(PeerMesh mesh, int lanes) {
    Communicator communicator = mesh.communicator();
    int nRanks = mesh.nRanks();
    this.mesh = mesh;
    this.lanes = lanes;
    ChannelFailureListener abort = (id, peer, reason) -> communicator.abort(reason);
    this.proxyService =
        new ProxyService(
            communicator,
            FifoDescriptor.DEFAULT_SIZE,
            ProxyOptions.builderFor(mesh.communicator().device())
                .name("fluxccl-proxy-" + mesh.rank())
                .build(),
            abort);
    this.semaphoreOf = new SmDevice2DeviceSemaphore[lanes][nRanks];
    this.proxySemaphoreOf = new int[lanes][nRanks];
    this.memoryIds = new int[nRanks];
    this.scratchIds = new int[nRanks];
  }

  /** Queues the set-up of the semaphores. */
  void addSemaphores() {
    Communicator communicator = mesh.communicator();
    for (int lane = 0; lane < lanes; lane++) {
      for (int peer = 0; peer < mesh.nRanks(); peer++) {
        if (isMapped(peer)) {
          semaphoreOf[lane][peer] =
              new SmDevice2DeviceSemaphore(communicator, mesh.connection(peer));
          semaphores.add(semaphoreOf[lane][peer]);
        } else if (isProxied(peer)) {
          proxySemaphoreOf[lane][peer] =
              proxyService.buildAndAddSemaphore(communicator, mesh.connection(peer));
        }
      }
    }
  }

  /**
   * Binds the channels and starts the proxy, after the set-up.
   *
   * @param source this rank's buffer
   * @param memories everybody's buffers, by rank
   * @param scratches everybody's scratch memory, by rank
   */
  void bind(DeviceBuffer source, RegisteredMemory[] memories, RegisteredMemory[] scratches) {
    this.buffer = source;
    this.memories = memories;
    this.scratches = scratches;
    sourceId = proxyService.addMemory(memories[mesh.rank()]);
    for (int peer = 0; peer < mesh.nRanks(); peer++) {
      if (isProxied(peer)) {
        memoryIds[peer] = proxyService.addMemory(memories[peer]);
        scratchIds[peer] = proxyService.addMemory(scratches[peer]);
      }
    }
    proxyService.startProxy();
  }

  /** Whether a peer is another rank to which there are SM channels. */
  boolean isMapped(int peer) {
    return peer != mesh.rank() && mesh.isMapped(peer);
  }

  /** Whether a peer is another rank to which there are proxy channels. */
  boolean isProxied(int peer) {
    return peer != mesh.rank() && !mesh.isMapped(peer);
  }

  SmChannel smToScratch(int lane, int peer) {
    return new SmChannel(semaphoreOf[lane][peer], scratches[peer], buffer);
  }

  SmChannel smToBuffer(int lane, int peer) {
    return new SmChannel(semaphoreOf[lane][peer], memories[peer], buffer);
  }

  ProxyChannel proxyToScratch(int lane, int peer) {
    return proxyService.proxyChannel(proxySemaphoreOf[lane][peer], scratchIds[peer], sourceId);
  }

  ProxyChannel proxyToBuffer(int lane, int peer) {
    return proxyService.proxyChannel(proxySemaphoreOf[lane][peer], memoryIds[peer], sourceId);
  }

  /** Stops the proxy and frees the semaphores. No kernel may use a channel any more. */
  @Override
  public void close() {
    proxyService.close();
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
  }
}
