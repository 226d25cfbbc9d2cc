// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.Aborted;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.SmChannelDeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import reactor.core.publisher.Mono;

/** Kernels in Java, for the host device. */
final class JavaKernels implements PairKernels {
  private static final int THREADS = 4;

  private final Mesh mesh;
  private final DeviceStream stream;

  /** By buffer, then by peer. */
  private final List<Map<Integer, SmChannelDeviceHandle>> smChannels = new ArrayList<>();

  private final List<Map<Integer, ProxyChannelDeviceHandle>> proxyChannels = new ArrayList<>();

  JavaKernels(DeviceSide channels, DeviceStream stream) {
    this.mesh = channels.mesh;
    this.stream = stream;
    for (int buffer = 0; buffer < buffers(); buffer++) {
      Map<Integer, SmChannelDeviceHandle> direct = new HashMap<>();
      channels.smChannels.get(buffer).forEach((peer, c) -> direct.put(peer, c.deviceHandle()));
      smChannels.add(direct);
      Map<Integer, ProxyChannelDeviceHandle> asked = new HashMap<>();
      channels.proxyChannels.get(buffer).forEach((peer, c) -> asked.put(peer, c.deviceHandle()));
      proxyChannels.add(asked);
    }
  }

  @Override
  public int buffers() {
    return mesh.buffers.size();
  }

  @Override
  public Mono<Void> completion() {
    return Mono.defer(() -> Mono.fromFuture(stream.completion()));
  }

  @Override
  public Mono<Void> addChunks(int buffer) {
    return Mono.defer(
        () -> {
          HostKernel kernel =
              HostKernel.of("add-chunks", (thread, args) -> addChunks(thread, args.getInt(0)));
          stream.launch(kernel, 1, THREADS, KernelArgs.of(buffer));
          return completion();
        });
  }

  @Override
  public void enqueueAllPairs(int buffer) {
    HostKernel kernel = HostKernel.of("all-pairs", this::run);
    stream.launch(kernel, 1, THREADS, KernelArgs.of(buffer, mesh.communicator.abortFlag()));
  }

  private void run(KernelThread thread, KernelArgs args) {
    int buffer = args.getInt(0);
    for (int i = 1; i < mesh.nRanks; i++) {
      int peer = (mesh.rank + i) % mesh.nRanks;
      put(thread, buffer, peer, mesh.bytes + mesh.rank * mesh.chunk(), peer * mesh.chunk());
    }
    awaitAll(thread, buffer);
    addChunks(thread, buffer);
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
    if (mesh.isMapped(peer)) {
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

  private void addChunks(KernelThread thread, int buffer) {
    long data = mesh.buffers.get(buffer).address();
    long own = data + mesh.rank * mesh.chunk();
    for (int peer = 0; peer < mesh.nRanks; peer++) {
      if (peer != mesh.rank) {
        long theirs = data + mesh.bytes + peer * mesh.chunk();
        for (long at = 4L * thread.threadIdx(); at < mesh.chunk(); at += 4L * thread.blockDim()) {
          HostMemory.putInt(own + at, HostMemory.getInt(own + at) + HostMemory.getInt(theirs + at));
        }
      }
    }
  }
}
