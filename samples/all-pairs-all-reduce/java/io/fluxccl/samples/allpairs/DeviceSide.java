package io.fluxccl.samples.allpairs;

import io.fluxccl.Aborted;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.channel.SmChannelDeviceHandle;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Mono;

/**
 * The kernels move the bytes: SM channels to ranks of this host, proxy channels to the others. No
 * barrier of the host is needed; each wait takes exactly one signal of its peer.
 */
final class DeviceSide implements AutoCloseable {
  static final int THREADS = 4;

  private final Mesh mesh;
  private final DeviceStream stream;
  private final ProxyService proxyService;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();

  /** By buffer, then by peer. */
  private final List<Map<Integer, SmChannelDeviceHandle>> smChannels = new ArrayList<>();

  private final List<Map<Integer, ProxyChannelDeviceHandle>> proxyChannels = new ArrayList<>();

  private DeviceSide(Mesh mesh, DeviceStream stream) {
    this.mesh = mesh;
    this.stream = stream;
    this.proxyService = new ProxyService(mesh.communicator);
  }

  /** Steps 4 to 6: semaphores, channels, the proxy's thread. */
  static CompletableFuture<DeviceSide> build(Mesh mesh, DeviceStream stream) {
    DeviceSide side = new DeviceSide(mesh, stream);
    Communicator communicator = mesh.communicator;
    List<Map<Integer, SmDevice2DeviceSemaphore>> sm = new ArrayList<>();
    List<Map<Integer, Integer>> proxied = new ArrayList<>();
    for (int i = 0; i < mesh.buffers.size(); i++) {
      sm.add(new HashMap<>());
      proxied.add(new HashMap<>());
      for (int peer : mesh.connections.keySet()) {
        if (mesh.isLocal(peer)) {
          SmDevice2DeviceSemaphore semaphore =
              new SmDevice2DeviceSemaphore(communicator, mesh.connections.get(peer));
          side.semaphores.add(semaphore);
          sm.get(i).put(peer, semaphore);
        } else {
          proxied
              .get(i)
              .put(
                  peer,
                  side.proxyService.buildAndAddSemaphore(communicator, mesh.connections.get(peer)));
        }
      }
    }
    return communicator.setup().thenApply(ready -> side.buildChannels(sm, proxied));
  }

  private DeviceSide buildChannels(
      List<Map<Integer, SmDevice2DeviceSemaphore>> sm, List<Map<Integer, Integer>> proxied) {
    for (int i = 0; i < mesh.buffers.size(); i++) {
      int buffer = i;
      Map<Integer, SmChannelDeviceHandle> direct = new HashMap<>();
      sm.get(i)
          .forEach(
              (peer, semaphore) ->
                  direct.put(
                      peer,
                      new SmChannel(
                              semaphore,
                              mesh.remote.get(buffer).get(peer),
                              mesh.buffers.get(buffer))
                          .deviceHandle()));
      smChannels.add(direct);
      Map<Integer, ProxyChannelDeviceHandle> asked = new HashMap<>();
      proxied
          .get(i)
          .forEach(
              (peer, semaphore) ->
                  asked.put(
                      peer,
                      proxyService
                          .proxyChannel(
                              semaphore,
                              proxyService.addMemory(mesh.remote.get(buffer).get(peer)),
                              proxyService.addMemory(mesh.local.get(buffer)))
                          .deviceHandle()));
      proxyChannels.add(asked);
    }
    proxyService.startProxy();
    return this;
  }

  /** One kernel a buffer, all enqueued at once. */
  Mono<Void> allReduce() {
    return Mono.defer(
        () -> {
          HostKernel kernel = HostKernel.of("all-pairs", this::run);
          for (int i = 0; i < mesh.buffers.size(); i++) {
            stream.launch(kernel, 1, THREADS, KernelArgs.of(i, mesh.communicator.abortFlag()));
          }
          return Mono.fromFuture(stream.completion());
        });
  }

  private void run(KernelThread thread, KernelArgs args) {
    int buffer = args.getInt(0);
    for (int i = 1; i < mesh.nRanks; i++) {
      int peer = (mesh.rank + i) % mesh.nRanks;
      put(thread, buffer, peer, mesh.bytes + mesh.rank * mesh.chunk(), peer * mesh.chunk());
    }
    awaitAll(thread, buffer);
    HostSide.addChunks(
        mesh, mesh.buffers.get(buffer).address(), thread.threadIdx(), thread.blockDim());
    sync(thread);
    for (int i = 1; i < mesh.nRanks; i++) {
      int peer = (mesh.rank + i) % mesh.nRanks;
      put(thread, buffer, peer, mesh.rank * mesh.chunk(), mesh.rank * mesh.chunk());
    }
    awaitAll(thread, buffer);
    if (thread.threadIdx() == 0) {
      proxyChannels.get(buffer).values().forEach(channel -> give(channel.flush()));
    }
  }

  /** All threads copy to a peer of this host; one thread asks the proxy for the others. */
  private void put(KernelThread thread, int buffer, int peer, long target, long source) {
    if (mesh.isLocal(peer)) {
      SmChannelDeviceHandle channel = smChannels.get(buffer).get(peer);
      channel.put(target, source, mesh.chunk(), thread.threadIdx(), thread.blockDim());
      sync(thread);
      if (thread.threadIdx() == 0) {
        channel.signal();
      }
    } else if (thread.threadIdx() == 0) {
      give(proxyChannels.get(buffer).get(peer).putWithSignal(target, source, mesh.chunk()));
    }
  }

  /** Thread 0 waits for one signal of every peer, the others for thread 0. */
  private void awaitAll(KernelThread thread, int buffer) {
    if (thread.threadIdx() == 0) {
      smChannels.get(buffer).values().forEach(channel -> give(channel.await()));
      proxyChannels.get(buffer).values().forEach(channel -> give(channel.await()));
    }
    sync(thread);
  }

  private static void sync(KernelThread thread) {
    give(thread.syncThreads());
  }

  private static void give(boolean there) {
    if (!there) {
      throw new Aborted(Aborted.NO_RANK, "all-pairs kernel gave up: the communicator has failed");
    }
  }

  @Override
  public void close() {
    proxyService.close();
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
  }
}
