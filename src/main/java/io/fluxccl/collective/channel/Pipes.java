// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.channel.ChannelFailureListener;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.semaphore.SemaphoreLocation;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;

/**
 * The staging memory and semaphores of a lane's pipes. Each pipe has a semaphore for filled slots
 * and one for emptied slots; kernels on GPUs signal those of mapped ranks themselves, the proxy
 * those of all others. Host-device pipes to mapped ranks need none, see {@link MappedPipe}.
 * Outlives every kernel that uses it.
 */
final class Pipes implements AutoCloseable {
  /** Time that the other ranks may take to close after this one. */
  private static final Duration DRAIN_LIMIT = Duration.ofSeconds(5);

  /** Index of a pipe's semaphore for filled slots. */
  static final int FILLED = 0;

  /** Index of a pipe's semaphore for emptied slots. */
  static final int EMPTIED = 1;

  final PeerConnections peers;
  final PipeLayout layout;
  private final DeviceBuffer memory;
  private final ProxyService proxyService;
  private final SmDevice2DeviceSemaphore[][] mapped;
  private final int[][] proxied;
  private RegisteredMemory[] memories;
  private int[] memoryIds;

  private Pipes(PeerConnections peers, PipeLayout layout) {
    Communicator communicator = peers.communicator();
    this.peers = peers;
    this.layout = layout;
    this.mapped = new SmDevice2DeviceSemaphore[2][layout.pipes()];
    this.proxied = new int[2][layout.pipes()];
    ChannelFailureListener abort = (id, peer, reason) -> communicator.abort(reason);
    this.memory = communicator.device().allocate(layout.bytes());
    this.proxyService =
        Closing.onFailure(
            memory,
            () ->
                new ProxyService(
                    communicator,
                    FifoDescriptor.DEFAULT_SIZE,
                    ProxyOptions.builderFor(communicator.device())
                        .name("fluxccl-proxy-" + peers.rank())
                        .build(),
                    abort));
  }

  /** Allocates and exchanges the memory: zeros, with which rings and semaphores begin. */
  static CompletableFuture<Pipes> open(PeerConnections peers, PipeLayout layout) {
    AtomicReference<Pipes> pipes = new AtomicReference<>();
    return peers
        .exchange(
            () -> {
              pipes.set(new Pipes(peers, layout));
              return pipes.get().memory;
            })
        .thenApply(all -> pipes.get().bind(all))
        .whenComplete(PeerConnections.onFailure(() -> Closing.all(pipes.get())));
  }

  private void addSemaphores() {
    Communicator communicator = peers.communicator();
    for (int which = FILLED; which <= EMPTIED; which++) {
      for (int lane = 0; lane < layout.lanes(); lane++) {
        for (int peer = 0; peer < peers.nRanks(); peer++) {
          int index = layout.index(lane, peers.rank(), peer);
          if (peer == peers.rank()) {
            continue;
          }
          Connection connection = peers.connection(peer);
          SemaphoreLocation here = place(which, lane, peers.rank(), peer);
          SemaphoreLocation there = place(which, lane, peer, peers.rank());
          if (!peers.isMapped(peer)) {
            proxied[which][index] =
                proxyService.addSemaphore(
                    new Host2DeviceSemaphore(communicator, connection, here, there));
          } else if (peers.topology().kind() == DeviceKind.CUDA) {
            mapped[which][index] =
                new SmDevice2DeviceSemaphore(communicator, connection, here, there);
          }
        }
      }
    }
  }

  private SemaphoreLocation place(int which, int lane, int rank, int peer) {
    return new SemaphoreLocation(memories[rank], layout.semaphoreOffset(which, lane, rank, peer));
  }

  private Pipes bind(RegisteredMemory[] all) {
    memories = all;
    addSemaphores();
    memoryIds = new int[peers.nRanks()];
    for (int rank = 0; rank < peers.nRanks(); rank++) {
      if (rank == peers.rank() || !peers.isMapped(rank)) {
        memoryIds[rank] = proxyService.addMemory(all[rank]);
      }
    }
    proxyService.startProxy();
    return this;
  }

  /** Returns this rank's end of a host-device pipe. */
  Pipe hostPipe(int lane, int peer) {
    return peers.isMapped(peer)
        ? new MappedPipe(
            peer,
            new SlotRing(layout.slotBytes(peers.rank(), peer)),
            outbox(lane, peer),
            inbox(lane, peer),
            peers.communicator().abortFlag().deviceAddress(),
            peers::receivedOtherCall)
        : new ProxiedPipe(this, lane, peer);
  }

  /** Returns one of the semaphores of a GPU's pipe to a rank whose memory is mapped. */
  SmDevice2DeviceSemaphore semaphore(int which, int lane, int peer) {
    return mapped[which][layout.index(lane, peers.rank(), peer)];
  }

  /** Returns the channel from this rank's staging memory to that of a rank on another host. */
  ProxyChannel channel(int which, int lane, int peer) {
    int index = layout.index(lane, peers.rank(), peer);
    return proxyService.proxyChannel(
        proxied[which][index], memoryIds[peer], memoryIds[peers.rank()]);
  }

  /** Returns the address of the slots that a peer fills for this rank. */
  long inbox(int lane, int peer) {
    return memory.address() + layout.inboxOffset(lane, peers.rank(), peer);
  }

  /** Returns the address of the slots that this rank fills for a peer. */
  long outbox(int lane, int peer) {
    return peers.isMapped(peer)
        ? memories[peer].address() + layout.inboxOffset(lane, peer, peers.rank())
        : memory.address() + layout.outboxOffset(lane, peers.rank(), peer);
  }

  /**
   * Drains transfers in flight to this rank and from it: a last piece that the proxy has not sent
   * yet, or a credit that arrives when no kernel waits for it. Memory must stay until then.
   *
   * @return completes normally when all peers are drained, or after {@link #DRAIN_LIMIT}
   */
  CompletableFuture<Void> drain() {
    proxyService.stopProxy();
    return CompletableFuture.allOf(
            IntStream.range(0, peers.nRanks())
                .filter(peers::mayHaveTransfers)
                .mapToObj(this::drain)
                .toArray(CompletableFuture<?>[]::new))
        .handle((done, failure) -> null);
  }

  private CompletableFuture<Void> drain(int peer) {
    return peers
        .connection(peer)
        .flush(DRAIN_LIMIT)
        .thenCompose(flushed -> peers.rendezvous(peer, DRAIN_LIMIT));
  }

  /** Stops the proxy and frees the memory. No kernel may use a pipe any more. */
  @Override
  public void close() {
    // A running proxy keeps the memory.
    proxyService.close();
    memory.close();
  }
}
