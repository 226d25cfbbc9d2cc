package io.fluxccl.collective.channel;

import io.fluxccl.channel.ChannelFailureListener;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * What pipes are made of: the staging memory, exchanged; for each pipe a semaphore for slots that
 * were filled and one for slots that were emptied, on which kernels signal where memory is mapped
 * and the proxy otherwise. Outlives every kernel that uses it.
 */
final class Pipes implements AutoCloseable {
  /** How long the other ranks may take to close, after this one. */
  private static final Duration FAREWELL = Duration.ofSeconds(5);

  /** The two semaphores of a pipe. */
  static final int FILLED = 0;

  static final int EMPTIED = 1;

  private final PeerConnections peers;
  private final PipeLayout layout;
  private final DeviceBuffer memory;
  private final ProxyService proxyService;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();
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
    try {
      this.proxyService =
          new ProxyService(
              communicator,
              FifoDescriptor.DEFAULT_SIZE,
              ProxyOptions.builderFor(communicator.device())
                  .name("fluxccl-proxy-" + peers.rank())
                  .build(),
              abort);
    } catch (RuntimeException e) {
      memory.close();
      throw e;
    }
  }

  /** Sets them up with all ranks. */
  static CompletableFuture<Pipes> open(PeerConnections peers, PipeLayout layout) {
    Pipes pipes = new Pipes(peers, layout);
    return peers
        .exchange(pipes.memory)
        .thenCompose(all -> peers.setup(pipes::addSemaphores).thenApply(done -> pipes.bind(all)))
        .whenComplete(
            (done, failure) -> {
              if (failure != null) {
                pipes.close();
              }
            });
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
          if (peers.isMapped(peer)) {
            mapped[which][index] =
                new SmDevice2DeviceSemaphore(communicator, peers.connection(peer));
            semaphores.add(mapped[which][index]);
          } else {
            proxied[which][index] =
                proxyService.buildAndAddSemaphore(communicator, peers.connection(peer));
          }
        }
      }
    }
  }

  private Pipes bind(RegisteredMemory[] all) {
    memories = all;
    memoryIds = new int[peers.nRanks()];
    for (int rank = 0; rank < peers.nRanks(); rank++) {
      if (rank == peers.rank() || !peers.isMapped(rank)) {
        memoryIds[rank] = proxyService.addMemory(all[rank]);
      }
    }
    proxyService.startProxy();
    return this;
  }

  PeerConnections peers() {
    return peers;
  }

  PipeLayout layout() {
    return layout;
  }

  /** One of the semaphores of a pipe to a rank whose memory is mapped. */
  SmDevice2DeviceSemaphore semaphore(int which, int lane, int peer) {
    return mapped[which][layout.index(lane, peers.rank(), peer)];
  }

  /**
   * One of the semaphores of a pipe to another host, from this rank's staging memory to the peer's.
   */
  ProxyChannel channel(int which, int lane, int peer) {
    int index = layout.index(lane, peers.rank(), peer);
    return proxyService.proxyChannel(
        proxied[which][index], memoryIds[peer], memoryIds[peers.rank()]);
  }

  /** Where this rank finds what a peer has put into its pipe. */
  long inbox(int lane, int peer) {
    return memory.address() + layout.inboxOffset(lane, peers.rank(), peer);
  }

  /** Where this rank puts what is for a peer. */
  long outbox(int lane, int peer) {
    return peers.isMapped(peer)
        ? memories[peer].address() + layout.inboxOffset(lane, peer, peers.rank())
        : memory.address() + layout.outboxOffset(lane, peers.rank(), peer);
  }

  /**
   * Sees off what is on its way to this rank and from it: a last piece that the peer has not been
   * sent yet, a credit that comes when nobody waits for it. Memory must stay until then.
   *
   * @return completes, normally, when that is over for all peers, or has taken too long
   */
  CompletableFuture<Void> drain() {
    proxyService.stopProxy();
    CompletableFuture<?>[] leaveNotices = new CompletableFuture<?>[peers.nRanks()];
    for (int peer = 0; peer < peers.nRanks(); peer++) {
      leaveNotices[peer] =
          peer == peers.rank() || peers.isMapped(peer)
              ? CompletableFuture.completedFuture(null)
              : farewell(peer);
    }
    return CompletableFuture.allOf(leaveNotices).handle((done, failure) -> null);
  }

  private CompletableFuture<Void> farewell(int peer) {
    // Meeting is on the way to every peer before the first is waited for.
    return peers
        .connection(peer)
        .flush(FAREWELL)
        .thenCompose(flushed -> peers.rendezvous(peer, FAREWELL));
  }

  /** Stops the proxy and frees it all. No kernel may use a pipe any more. */
  @Override
  public void close() {
    // What can't be closed keeps nothing else from it; but who may still copy keeps the memory.
    proxyService.close();
    Closing.all(() -> Closing.all(semaphores), memory);
  }
}
