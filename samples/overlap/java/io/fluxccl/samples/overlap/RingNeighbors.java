// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.overlap;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;

/**
 * A proxy channel to the next rank's memory, and a semaphore that the previous rank raises. All
 * ranks make it together; blocks.
 */
final class RingNeighbors implements AutoCloseable {
  private final ProxyService service;
  private final Connection toNext;
  private final Connection fromPrevious;
  private final RegisteredMemory local;
  private final RegisteredMemory ofNext;
  private final ProxyChannel next;
  private final Host2DeviceSemaphore previous;

  RingNeighbors(Communicator communicator, DeviceBuffer memory) {
    int rank = communicator.bootstrap().rank();
    int nRanks = communicator.bootstrap().nRanks();
    int nextRank = (rank + 1) % nRanks;
    int previousRank = (rank + nRanks - 1) % nRanks;
    // Of two ranks, each is the other's next and previous one. The tag, the sender's rank,
    // distinguishes the connections.
    EndpointConfig config = EndpointConfig.of(Transport.CUDA_IPC);
    NonblockingFuture<Connection> out = communicator.connectOnSetup(nextRank, rank, config);
    NonblockingFuture<Connection> in =
        communicator.connectOnSetup(previousRank, previousRank, config);
    this.local = communicator.registerMemory(memory, TransportFlags.of(Transport.CUDA_IPC));
    communicator.sendMemoryOnSetup(local, previousRank, previousRank);
    NonblockingFuture<RegisteredMemory> theirs = communicator.recvMemoryOnSetup(nextRank, rank);
    communicator.setup().join();
    this.toNext = out.join();
    this.fromPrevious = in.join();
    this.ofNext = theirs.join();

    this.service = new ProxyService(communicator);
    int semaphore = service.buildAndAddSemaphore(communicator, toNext);
    this.previous = new Host2DeviceSemaphore(communicator, fromPrevious);
    service.addSemaphore(previous);
    communicator.setup().join();
    this.next =
        service.proxyChannel(semaphore, service.addMemory(ofNext), service.addMemory(local));
    service.startProxy();
  }

  /** For kernels: puts into the next rank's memory. */
  ProxyChannel next() {
    return next;
  }

  /** For kernels: raised when the previous rank's put has arrived. */
  Host2DeviceSemaphore previous() {
    return previous;
  }

  /** No kernel may use it any more. */
  @Override
  public void close() {
    service.close();
    ofNext.close();
    local.close();
    toNext.close();
    fromPrevious.close();
  }
}
