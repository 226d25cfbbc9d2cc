package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BiConsumer;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * A connection to every other rank, and the memories of all ranks that were exchanged over them:
 * algorithms are built on these. All ranks call its methods in the same order.
 */
public final class PeerConnections implements AutoCloseable {
  private static final Duration LEAVE_TIMEOUT = Duration.ofSeconds(5);

  private final Communicator communicator;
  private final int tag;
  private final Deadline deadline;
  private final TransportChoice choice;
  private final List<DeviceDescription> devices;
  private final int threads;
  private final RankTopology topology;

  /** This rank's memories and those of the peers, some of which may be on their way. */
  private final List<CompletableFuture<RegisteredMemory>> memories = new CopyOnWriteArrayList<>();

  private Connection[] connections;
  private TransportFlags transports = TransportFlags.NONE;

  /**
   * Describes the connections that {@link #connect} makes.
   *
   * @param choice of transports
   * @param tag of the connections
   * @param deadline by when
   * @param ranks the descriptions of all ranks
   */
  PeerConnections(
      Communicator communicator,
      TransportChoice choice,
      int tag,
      Deadline deadline,
      List<LaneDescription> ranks) {
    this.communicator = communicator;
    this.choice = choice;
    this.tag = tag;
    this.deadline = deadline;
    this.devices = ranks.stream().map(LaneDescription::device).toList();
    this.threads = ranks.stream().mapToInt(LaneDescription::threads).min().orElse(1);
    this.topology = makeTopology();
  }

  /** Connects to all ranks; on failure, connections already made are closed. */
  CompletableFuture<PeerConnections> connect() {
    List<CompletableFuture<Connection>> links = new ArrayList<>();
    return communicator
        .setup(deadline, () -> connectOnSetup(links))
        .thenApply(ready -> connected(links))
        .whenComplete(
            onFailure(() -> links.forEach(link -> link.thenAccept(each -> Closing.all(each)))));
  }

  private PeerConnections connectOnSetup(List<CompletableFuture<Connection>> links) {
    // Longer than the set-up's own deadline, which is the one that counts.
    Duration enough = deadline.timeout().plusSeconds(1);
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer == rank()) {
        links.add(CompletableFuture.completedFuture(null));
        continue;
      }
      Transport transport = choice.between(rank(), peer, devices, communicator.bootstrap());
      transports = transports.with(transport);
      links.add(
          communicator.connectOnSetup(
              peer, tag, EndpointConfig.of(transport).withConnectTimeout(enough)));
    }
    return this;
  }

  private PeerConnections connected(List<CompletableFuture<Connection>> links) {
    connections = links.stream().map(CompletableFuture::join).toArray(Connection[]::new);
    return this;
  }

  /**
   * Returns a last stage that runs only if the stages before it have failed.
   *
   * @param release frees what they had prepared
   */
  public static BiConsumer<Object, Throwable> onFailure(Runnable release) {
    return (done, failure) -> {
      if (failure != null) {
        release.run();
      }
    };
  }

  private RankTopology makeTopology() {
    Bootstrap bootstrap = communicator.bootstrap();
    int n = bootstrap.nRanks();
    List<Long> hosts =
        IntStream.range(0, n).mapToLong(bootstrap::hostHash).distinct().boxed().toList();
    DeviceKind kind = communicator.device().kind();
    boolean isGpu = kind == DeviceKind.CUDA;
    return new RankTopology(
        bootstrap.rank(),
        n,
        kind,
        IntStream.range(0, n).mapToObj(peer -> hosts.indexOf(bootstrap.hostHash(peer))).toList(),
        choice.only().isEmpty() || choice.only().get() == TransportChoice.local(kind),
        isGpu ? devices.stream().mapToInt(DeviceDescription::multiprocessors).min().orElse(0) : 0,
        isGpu ? devices.stream().mapToInt(DeviceDescription::computeCapability).min().orElse(0) : 0,
        isGpu ? DeviceDescription.mostRanksPerGpu(devices, bootstrap) : 1);
  }

  /** Returns this rank. */
  public int rank() {
    return communicator.bootstrap().rank();
  }

  /** Returns the number of ranks. */
  public int nRanks() {
    return communicator.bootstrap().nRanks();
  }

  /** Returns the communicator whose ranks are connected. */
  public Communicator communicator() {
    return communicator;
  }

  int tag() {
    return tag;
  }

  /** Returns the connection to a peer; null to this rank. */
  public Connection connection(int peer) {
    return connections[peer];
  }

  /**
   * Returns how many threads a kernel of the host device has: the fewest of all ranks, because
   * options and cores may differ between ranks.
   */
  public int threads() {
    return threads;
  }

  /** Returns the transports of all connections. */
  public TransportFlags transports() {
    return transports;
  }

  /** Returns which ranks share a host, and what is common to all devices. */
  public RankTopology topology() {
    return topology;
  }

  /** Returns the devices of all ranks, by rank. */
  List<DeviceDescription> devices() {
    return devices;
  }

  /** Returns whether this process maps a peer's memory; false for this rank. */
  public boolean isMapped(int peer) {
    Connection connection = connections[peer];
    return connection != null
        && (connection.transport() == Transport.SHM
            || connection.transport() == Transport.CUDA_IPC);
  }

  /**
   * Sets up what an algorithm builds on the connections, above all semaphores.
   *
   * @param queueing queues set-ups, in the same order on all ranks
   * @return completes when they are done. Continuations may block
   */
  public CompletableFuture<Void> setup(Runnable queueing) {
    return communicator
        .setup(
            Deadline.after(deadline.timeout()),
            () -> {
              queueing.run();
              return queueing;
            })
        .thenAcceptAsync(done -> {}, BlockingTasks.EXECUTOR);
  }

  /**
   * Sends every peer the description of a memory of this rank and receives theirs. The
   * registrations are closed with these connections; at once, on this rank, if the exchange fails.
   *
   * @param own memory of this rank's device, of the same size on every rank
   * @return the memories of all ranks, by rank; {@link InvalidUsage} if one differs in size, after
   *     all ranks have found that. Continuations may block
   */
  public CompletableFuture<RegisteredMemory[]> exchange(DeviceBuffer own) {
    CompletableFuture<RegisteredMemory> mine;
    try {
      mine = CompletableFuture.completedFuture(register(own));
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
    List<CompletableFuture<RegisteredMemory>> all = new ArrayList<>(List.of(mine));
    memories.add(mine);
    return setup(() -> exchangeOnSetup(mine.join(), all))
        .thenApply(
            done -> all.stream().map(CompletableFuture::join).toArray(RegisteredMemory[]::new))
        .thenCompose(this::requireSameSizes)
        .whenCompleteAsync(onFailure(() -> forget(all)), BlockingTasks.EXECUTOR);
  }

  /** Registers a buffer for all transports in use. */
  private RegisteredMemory register(DeviceBuffer buffer) {
    TransportFlags flags =
        transports.equals(TransportFlags.NONE)
            ? TransportFlags.of(TransportChoice.local(topology.kind()))
            : transports;
    return communicator.registerMemory(buffer, flags);
  }

  /** Adds the peers' memories to this rank's, so that each has its rank's place. */
  private void exchangeOnSetup(
      RegisteredMemory mine, List<CompletableFuture<RegisteredMemory>> all) {
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer != rank()) {
        communicator.sendMemoryOnSetup(mine, peer, tag);
        all.add(peer, communicator.recvMemoryOnSetup(peer, tag));
        memories.add(all.get(peer));
      }
    }
  }

  /** Refuses memories of different sizes: kernels would write beyond the end of the smallest. */
  private CompletableFuture<RegisteredMemory[]> requireSameSizes(RegisteredMemory[] all) {
    long[] sizes = Arrays.stream(all).mapToLong(RegisteredMemory::size).toArray();
    if (LongStream.of(sizes).distinct().count() == 1) {
      return CompletableFuture.completedFuture(all);
    }
    InvalidUsage reason =
        InvalidUsage.of(
            "collectives tag=%d on rank %d: buffers have %s bytes, by rank; give buffers of the"
                + " same size on every rank",
            tag, rank(), Arrays.toString(sizes));
    // Every rank finds that. A rank that closed its buffer at once would take it from a peer that
    // is still mapping it.
    return awaitAllRanks()
        .handle(
            (met, failure) -> {
              throw reason;
            });
  }

  /** Closes memories of an exchange before these connections are closed. */
  void forget(RegisteredMemory[] exchanged) {
    List<RegisteredMemory> gone = List.of(exchanged);
    memories.removeIf(memory -> isDone(memory) && gone.contains(memory.join()));
    Closing.all(gone);
  }

  /** Closes memories that an exchange has received, and may yet receive. */
  private void forget(List<CompletableFuture<RegisteredMemory>> gone) {
    memories.removeAll(gone);
    close(gone);
  }

  private static void close(List<CompletableFuture<RegisteredMemory>> all) {
    Closing.all(all.stream().<AutoCloseable>map(memory -> () -> close(memory)).toList());
  }

  private static void close(CompletableFuture<RegisteredMemory> memory) {
    if (isDone(memory)) {
      memory.join().close();
    } else {
      memory.thenAccept(RegisteredMemory::close);
    }
  }

  private static boolean isDone(CompletableFuture<?> memory) {
    return memory.isDone() && !memory.isCompletedExceptionally();
  }

  /**
   * Waits until a peer has called this method too. Calls for one peer match in their order.
   *
   * @param peer another rank
   * @param within how long that may take
   */
  public CompletableFuture<Void> rendezvous(int peer, Duration within) {
    return communicator.rendezvous(peer, tag, Deadline.after(within));
  }

  private CompletableFuture<Void> rendezvous(IntPredicate with, Duration within) {
    return CompletableFuture.allOf(
        IntStream.range(0, nRanks())
            .filter(peer -> peer != rank() && with.test(peer))
            .mapToObj(peer -> rendezvous(peer, within))
            .toArray(CompletableFuture<?>[]::new));
  }

  /**
   * Waits until every rank has called this method, within the set-up's time limit. Aborts if a rank
   * does not: other ranks may have gone on, and count on this one.
   */
  CompletableFuture<Void> awaitAllRanks() {
    return rendezvous(peer -> true, deadline.timeout())
        .whenComplete(
            (met, failure) -> {
              if (failure != null) {
                communicator.abort(FluxCclException.from(failure));
              }
            });
  }

  /**
   * Closes memories now, and connections after the peers have called this method too, within a few
   * seconds. Until then peers may wait for acknowledgements, which end with the connection.
   */
  void leave() {
    Closing.all(() -> close(memories), this::closeConnectionsAfterPeers);
  }

  private void closeConnectionsAfterPeers() {
    rendezvous(peer -> !isMapped(peer), LEAVE_TIMEOUT)
        .whenComplete((done, failure) -> Closing.all(connections));
  }

  @Override
  public void close() {
    Closing.all(() -> close(memories), () -> Closing.all(connections));
  }
}
