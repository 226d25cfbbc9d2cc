package io.fluxccl.collective.channel;

import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.stream.IntStream;
import reactor.core.scheduler.Schedulers;

/** The algorithms over a lane's pipes. */
final class ChannelSet implements AlgorithmSet {
  /** More threads would not fill a socket faster. */
  private static final int MAX_HOST_LANES = 4;

  private static final int MAX_GPU_LANES = 8;

  /** A rank may have two collectives in flight, on two streams. */
  private static final int CONCURRENT = 2;

  private final Pipes pipes;
  private final GpuAlgorithms onGpu;
  private final List<CollectiveAlgorithm> algorithms;

  private ChannelSet(Pipes pipes) {
    this.pipes = pipes;
    boolean isGpu = pipes.peers().topology().kind() == DeviceKind.CUDA;
    this.onGpu = isGpu ? new GpuAlgorithms(pipes) : null;
    this.algorithms = isGpu ? onGpu.all() : HostAlgorithms.of(pipes);
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    // Allocating and filling memory blocks, and peers answer on a thread that must not.
    Executor blocking = Schedulers.boundedElastic()::schedule;
    return lanes(peers)
        .thenComposeAsync(
            lanes -> Pipes.open(peers, PipeLayout.of(peers.nRanks(), lanes)), blocking)
        .thenApply(ChannelSet::of);
  }

  private static AlgorithmSet of(Pipes pipes) {
    try {
      return new ChannelSet(pipes);
    } catch (RuntimeException e) {
      pipes.close();
      throw e;
    }
  }

  private static CompletableFuture<Integer> lanes(PeerConnections peers) {
    RankTopology topology = peers.topology();
    if (topology.kind() == DeviceKind.CUDA) {
      int resident = topology.multiprocessors() / CONCURRENT / topology.ranksPerGpu();
      return CompletableFuture.completedFuture(Math.max(1, Math.min(MAX_GPU_LANES, resident)));
    }
    return agree(peers, Math.max(1, Math.min(MAX_HOST_LANES, peers.threads())));
  }

  /** Hosts may have more cores or fewer: the least lanes that any rank can have. */
  private static CompletableFuture<Integer> agree(PeerConnections peers, int lanes) {
    Communicator communicator = peers.communicator();
    int[] of = new int[peers.nRanks()];
    CompletableFuture<?>[] greetings = new CompletableFuture<?>[peers.nRanks()];
    for (int rank = 0; rank < of.length; rank++) {
      int peer = rank;
      of[peer] = lanes;
      greetings[peer] =
          peer == peers.rank()
              ? CompletableFuture.completedFuture(null)
              : communicator
                  .exchange(peer, peers.tag(), new byte[] {(byte) lanes}, peers.deadline())
                  .thenAccept(theirs -> of[peer] = theirs.length == 1 ? theirs[0] : 1);
    }
    return CompletableFuture.allOf(greetings)
        .thenApply(done -> Math.max(1, IntStream.of(of).min().orElse(1)));
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public CompletableFuture<Void> drain() {
    return pipes.drain();
  }

  @Override
  public void close() {
    Closing.all(onGpu == null ? null : onGpu::close, pipes::close);
  }
}
