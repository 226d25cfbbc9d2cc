package io.fluxccl.collective.host;

import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.RegisteredMemory;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The arena of a lane on this rank, and the strands that work in it. */
final class HostSet implements AlgorithmSet {
  /** More than these would not be faster: memory is the limit. */
  private static final int MAX_STRANDS = 8;

  /** Which process this is, among those of this host. */
  private static final long PROCESS = new SecureRandom().nextLong();

  private static final int STRANDS_OFFSET = 0;
  private static final int PROCESS_OFFSET = 8;

  private final PeerConnections peers;
  private final List<DeviceBuffer> memory = new ArrayList<>();
  private List<CollectiveAlgorithm> algorithms = List.of();
  private Strand[] strands = {};

  private HostSet(PeerConnections peers) {
    this.peers = peers;
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    HostSet set = new HostSet(peers);
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
    Device device = peers.communicator().device();
    DeviceBuffer buffer = device.allocate(bytes);
    memory.add(buffer);
    return buffer;
  }

  /**
   * What ranks have said of themselves.
   *
   * @param strands the fewest threads that a rank has: options may differ in that
   * @param sameProcess by rank, whether it lives in this process
   */
  private record Ranks(int strands, boolean[] sameProcess) {}

  private CompletableFuture<Ranks> agreeOnStrands() {
    DeviceBuffer words = allocate(2 * Long.BYTES);
    HostMemory.putLong(words.address() + PROCESS_OFFSET, PROCESS);
    HostMemory.putLongRelease(
        words.address() + STRANDS_OFFSET, Math.min(MAX_STRANDS, peers.threads()));
    return peers
        .exchange(words)
        .thenApply(
            all -> {
              long least = MAX_STRANDS;
              boolean[] sameProcess = new boolean[all.length];
              for (int i = 0; i < all.length; i++) {
                long theirs = all[i].address();
                // Pairs with the release above, which came before the exchange.
                least = Math.min(least, HostMemory.getLongAcquire(theirs + STRANDS_OFFSET));
                sameProcess[i] = HostMemory.getLong(theirs + PROCESS_OFFSET) == PROCESS;
              }
              return new Ranks((int) least, sameProcess);
            });
  }

  private CompletableFuture<AlgorithmSet> exchangeArenas(Ranks ranks) {
    DeviceBuffer arena = allocate(PipeDescriptor.arenaLength(peers.nRanks(), ranks.strands()));
    PipeDescriptor.clear(arena.address(), peers.nRanks(), ranks.strands());
    return peers.exchange(arena).thenApply(arenas -> bind(arenas, ranks));
  }

  private AlgorithmSet bind(RegisteredMemory[] arenas, Ranks ranks) {
    int rank = peers.rank();
    int n = peers.nRanks();
    int nStrands = ranks.strands();
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
      strands[strand] = new Strand(rank, strand, nStrands, pipes, ranks.sameProcess());
    }
    List<CollectiveAlgorithm> ways = new ArrayList<>();
    for (HostCall.Way way : HostCall.Way.values()) {
      ways.add(new HostAlgorithm(way, peers.communicator(), strands));
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
    for (Strand strand : strands) {
      strand.close();
    }
    memory.forEach(DeviceBuffer::close);
  }
}
