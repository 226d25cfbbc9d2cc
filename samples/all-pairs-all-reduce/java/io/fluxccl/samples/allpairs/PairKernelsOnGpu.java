// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import reactor.core.publisher.Mono;

/** The kernels of all_pairs.cu, compiled when they are first needed. */
final class PairKernelsOnGpu implements PairKernels {
  private static final String SOURCE = "all_pairs.cu";
  private static final int BLOCKS = 32;
  private static final int THREADS = 512;

  private final Mesh mesh;
  private final DeviceStream stream;
  private final CudaModule module;
  private final Kernel addChunks;
  private final Kernel allPairs;

  /** By buffer: the channels' handles, one after the other, and how many. */
  private final List<DeviceBuffer> smChannels = new ArrayList<>();

  private final List<DeviceBuffer> proxyChannels = new ArrayList<>();
  private final int nSm;
  private final int nProxies;

  PairKernelsOnGpu(DeviceSide channels, DeviceStream stream) {
    this.mesh = channels.mesh;
    this.stream = stream;
    // Loaded now: loading while a kernel waits for a peer could wait for that kernel.
    this.module = CudaModule.fromSource(SOURCE, source()).prepare((CudaDevice) stream.device());
    this.addChunks = module.kernel("add_chunks");
    this.allPairs = module.kernel("all_pairs");
    channels.smChannels.forEach(byPeer -> smChannels.add(upload(byPeer.values())));
    channels.proxyChannels.forEach(byPeer -> proxyChannels.add(upload(byPeer.values())));
    this.nSm = channels.smChannels.get(0).size();
    this.nProxies = channels.proxyChannels.get(0).size();
  }

  private static String source() {
    try (InputStream in = PairKernelsOnGpu.class.getResourceAsStream(SOURCE)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private DeviceBuffer upload(Collection<? extends DeviceHandle> handles) {
    return handles.isEmpty()
        ? stream.device().allocate(1)
        : DeviceHandle.upload(stream.device(), List.copyOf(handles));
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
          stream.launch(
              addChunks,
              BLOCKS,
              THREADS,
              KernelArgs.of(mesh.buffers.get(buffer), mesh.chunk(), mesh.rank, mesh.nRanks));
          return completion();
        });
  }

  @Override
  public void enqueueAllPairs(int buffer) {
    // One block: the channels' signals are for one thread at a time.
    stream.launch(
        allPairs,
        1,
        THREADS,
        KernelArgs.of(
            smChannels.get(buffer),
            nSm,
            proxyChannels.get(buffer),
            nProxies,
            mesh.buffers.get(buffer),
            mesh.chunk(),
            mesh.rank,
            mesh.nRanks));
  }

  @Override
  public void close() {
    smChannels.forEach(DeviceBuffer::close);
    proxyChannels.forEach(DeviceBuffer::close);
    module.close();
  }
}
