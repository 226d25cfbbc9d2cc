package io.fluxccl.collective.host;

import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerMesh;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The arena of a lane on this rank, and the strands that work in it. */
final class HostSet implements AlgorithmSet {
  /** More than these would not be faster: memory is the limit. */
  private static final int MAX_STRANDS = 8;

  private final PeerMesh mesh;
  private final List<DeviceBuffer> memory = new ArrayList<>();
  private List<CollectiveAlgorithm> algorithms = List.of();

  private HostSet(PeerMesh mesh) {
    this.mesh = mesh;
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerMesh mesh) {
    HostSet set = new HostSet(mesh);
    return set.agreeOnStrands()
        .thenCompose(set::exchangeArenas)
        .whenComplete(
            (done, failure) -> {
              if (failure != null) {
                set.close();
              }
            });
  }

  private DeviceBuffer allocate(long bytes) {
    Device device = mesh.communicator().device();
    DeviceBuffer buffer = device.allocate(bytes);
    memory.add(buffer);
    return buffer;
  }

  /** The fewest threads that a rank has: options may differ in that. */
  private CompletableFuture<Integer> agreeOnStrands() {
    DeviceBuffer word = allocate(Long.BYTES);
    HostMemory.putLongRelease(word.address(), Math.min(MAX_STRANDS, mesh.threads()));
    return mesh.exchange(word)
        .thenApply(
            words -> {
              long least = MAX_STRANDS;
              for (RegisteredMemory theirs : words) {
                // Pairs with the release above, which came before the exchange.
                least = Math.min(least, HostMemory.getLongAcquire(theirs.address()));
              }
              return (int) least;
            });
  }

  private CompletableFuture<AlgorithmSet> exchangeArenas(int strands) {
    DeviceBuffer arena = allocate(PipeDescriptor.arenaLength(mesh.nRanks(), strands));
    PipeDescriptor.clear(arena.address(), mesh.nRanks(), strands);
    return mesh.exchange(arena).thenApply(arenas -> bind(arenas, strands));
  }

  private AlgorithmSet bind(RegisteredMemory[] arenas, int nStrands) {
    int rank = mesh.rank();
    int n = mesh.nRanks();
    Strand[] strands = new Strand[nStrands];
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
      strands[strand] = new Strand(rank, strand, nStrands, pipes);
    }
    List<CollectiveAlgorithm> ways = new ArrayList<>();
    for (HostCall.Way way : HostCall.Way.values()) {
      ways.add(new HostAlgorithm(way, mesh.communicator(), strands));
    }
    algorithms = List.copyOf(ways);
    return this;
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public void close() {
    memory.forEach(DeviceBuffer::close);
  }
}
