package io.fluxccl.collective.host;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The arena of a lane on this rank, and the strands that work in it. */
final class HostSet implements AlgorithmSet {
  /** More than these would not be faster: memory is the limit. */
  private static final int MAX_STRANDS = 8;

  private final PeerConnections peers;
  private final List<DeviceBuffer> memory = new ArrayList<>();
  private List<CollectiveAlgorithm> algorithms = List.of();
  private Strand[] strands = {};

  private HostSet(PeerConnections peers) {
    this.peers = peers;
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    HostSet set = new HostSet(peers);
    return set.exchangeArenas(Math.min(MAX_STRANDS, peers.threads()))
        .whenComplete(
            (done, failure) -> {
              if (failure != null) {
                set.close();
              }
            });
  }

  private DeviceBuffer allocate(long bytes) {
    Device device = peers.communicator().device();
    DeviceBuffer buffer = device.allocate(bytes);
    memory.add(buffer);
    return buffer;
  }

  private CompletableFuture<AlgorithmSet> exchangeArenas(int nStrands) {
    DeviceBuffer arena = allocate(PipeDescriptor.arenaLength(peers.nRanks(), nStrands));
    PipeDescriptor.clear(arena.address(), peers.nRanks(), nStrands);
    return peers.exchange(arena).thenApply(arenas -> bind(arenas, nStrands));
  }

  private AlgorithmSet bind(RegisteredMemory[] arenas, int nStrands) {
    int rank = peers.rank();
    int n = peers.nRanks();
    strands = new Strand[nStrands];
    for (int strand = 0; strand < nStrands; strand++) {
      Pipe[] pipes = new Pipe[n];
      for (int peer = 0; peer < n; peer++) {
        if (peer != rank) {
          pipes[peer] =
              new Pipe(
                  peer,
                  arenas[peer].address() + PipeDescriptor.pipe(rank, strand, n),
                  arenas[rank].address() + PipeDescriptor.pipe(peer, strand, n));
        }
      }
      strands[strand] = new Strand(rank, strand, nStrands, pipes, sameProcess());
    }
    List<CollectiveAlgorithm> ways = new ArrayList<>();
    for (HostCall.Way way : HostCall.Way.values()) {
      ways.add(new HostAlgorithm(way, peers.communicator(), strands));
    }
    algorithms = List.copyOf(ways);
    return this;
  }

  /** Returns, by rank, whether the rank lives in this process. */
  private boolean[] sameProcess() {
    Bootstrap bootstrap = peers.communicator().bootstrap();
    boolean[] same = new boolean[peers.nRanks()];
    for (int rank = 0; rank < same.length; rank++) {
      same[rank] = bootstrap.processHash(rank) == bootstrap.processHash(peers.rank());
    }
    return same;
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public void close() {
    for (Strand strand : strands) {
      strand.close();
    }
    memory.forEach(DeviceBuffer::close);
  }
}
