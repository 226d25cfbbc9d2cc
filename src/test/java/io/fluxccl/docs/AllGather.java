// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import io.fluxccl.Aborted;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.channel.SmChannelDeviceHandle;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.List;
import reactor.core.publisher.Mono;

/** Ranks of one host; rank r's part lies at r * part bytes, before and afterwards. */
final class AllGather {
  private static final int TAG = 7;
  private static final int THREADS = 2;
  private static final HostKernel KERNEL = HostKernel.of("all-gather", AllGather::kernel);

  private final Communicator communicator;
  private final DeviceStream stream;
  private final long part;
  private final List<SmChannelDeviceHandle> channels = new ArrayList<>();

  private AllGather(Communicator communicator, DeviceStream stream, long part) {
    this.communicator = communicator;
    this.stream = stream;
    this.part = part;
  }

  static AllGather prepare(Communicator communicator, DeviceStream stream, DeviceBuffer buffer) {
    int nRanks = communicator.bootstrap().nRanks();
    AllGather gather = new AllGather(communicator, stream, buffer.size() / nRanks);
    RegisteredMemory mine = communicator.registerMemory(buffer, TransportFlags.of(Transport.SHM));
    List<NonblockingFuture<Connection>> links = new ArrayList<>();
    List<NonblockingFuture<RegisteredMemory>> memories = new ArrayList<>();
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != communicator.bootstrap().rank()) {
        links.add(communicator.connectOnSetup(peer, TAG, EndpointConfig.of(Transport.SHM)));
        communicator.sendMemoryOnSetup(mine, peer, TAG);
        memories.add(communicator.recvMemoryOnSetup(peer, TAG));
      }
    }
    communicator.setup().join();
    List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();
    links.forEach(link -> semaphores.add(new SmDevice2DeviceSemaphore(communicator, link.join())));
    communicator.setup().join();
    for (int i = 0; i < semaphores.size(); i++) {
      RegisteredMemory theirs = memories.get(i).join();
      gather.channels.add(new SmChannel(semaphores.get(i), theirs, buffer).deviceHandle());
    }
    return gather;
  }

  /** One run; subscribing enqueues it. */
  Mono<Void> run() {
    return Mono.fromFuture(
        () -> {
          stream.launch(KERNEL, 1, THREADS, KernelArgs.of(this, communicator.abortFlag()));
          return communicator.inFlight(stream.completion());
        });
  }

  private static void kernel(KernelThread thread, KernelArgs args) {
    AllGather gather = args.get(0, AllGather.class);
    long offset = gather.communicator.bootstrap().rank() * gather.part;
    gather.meet(thread); // all peers are done with what their buffers held
    for (SmChannelDeviceHandle channel : gather.channels) {
      channel.put(offset, offset, gather.part, thread.threadIdx(), thread.blockDim());
    }
    gather.meet(thread); // all parts are here
  }

  /**
   * After all threads have written, one signals the peers and waits for them; then all continue.
   */
  private void meet(KernelThread thread) {
    boolean alive = thread.syncThreads();
    if (alive && thread.threadIdx() == 0) {
      for (SmChannelDeviceHandle channel : channels) {
        channel.signal();
      }
      for (SmChannelDeviceHandle channel : channels) {
        alive &= channel.await();
      }
    }
    if (!(alive & thread.syncThreads())) {
      throw new Aborted(Aborted.NO_RANK, "all-gather gave up: the communicator has failed");
    }
  }
}
