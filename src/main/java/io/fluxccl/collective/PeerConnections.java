package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
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
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import java.util.stream.IntStream;
import reactor.core.scheduler.Schedulers;

/**
 * A connection to every other rank, and everybody's memories exchanged over them: what algorithms
 * are built on. All ranks call its methods in the same order.
 */
public final class PeerConnections implements AutoCloseable {
  private static final Duration FAREWELL = Duration.ofSeconds(5);

  /** Set-ups open files and map memory: not on whichever thread a message came by. */
  static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  private final Communicator communicator;
  private final int tag;
  private final Deadline deadline;
  private final DeviceDescription[] devices;
  private final Connection[] connections;
  private final List<RegisteredMemory> registered = new CopyOnWriteArrayList<>();
  private final List<NonblockingFuture<RegisteredMemory>> received = new CopyOnWriteArrayList<>();
  private final TransportChoice choice;
  private TransportFlags transports = TransportFlags.NONE;
  private RankTopology topology;
  private int threads;

  private PeerConnections(
      Communicator communicator, TransportChoice choice, int tag, Deadline deadline) {
    this.choice = choice;
    this.communicator = communicator;
    this.tag = tag;
    this.deadline = deadline;
    this.devices = new DeviceDescription[communicator.bootstrap().nRanks()];
    this.connections = new Connection[communicator.bootstrap().nRanks()];
  }

  static CompletableFuture<PeerConnections> connect(
      Communicator communicator, TransportChoice choice, int tag, Deadline deadline, int threads) {
    PeerConnections peers = new PeerConnections(communicator, choice, tag, deadline);
    int cores = Runtime.getRuntime().availableProcessors();
    peers.threads =
        threads > 0 ? threads : Math.max(1, cores / communicator.bootstrap().nRanksPerNode());
    List<NonblockingFuture<Connection>> links = new ArrayList<>();
    return CompletableFuture.supplyAsync(() -> choice.usable(communicator), MAY_BLOCK)
        .thenCompose(peers::introduce)
        .thenComposeAsync(
            introduced -> communicator.setup(deadline, () -> peers.connectOnSetup(links)),
            MAY_BLOCK)
        .thenApply(ready -> peers.connected(links))
        .whenComplete(
            (done, failure) -> {
              if (failure != null) {
                links.stream()
                    .filter(Objects::nonNull)
                    .forEach(link -> link.thenAccept(Connection::close));
              }
            });
  }

  /** Every rank learns what device every other has, and by which networks it is reached. */
  private CompletableFuture<Void> introduce(TransportFlags networks) {
    devices[rank()] = DeviceDescription.of(communicator.device(), networks);
    byte[] mine = devices[rank()].encode();
    CompletableFuture<?>[] greetings =
        IntStream.range(0, nRanks())
            .filter(peer -> peer != rank())
            .mapToObj(
                peer ->
                    communicator
                        .exchange(peer, tag, mine, deadline)
                        .thenAccept(
                            theirs -> devices[peer] = DeviceDescription.decode(theirs, peer)))
            .toArray(CompletableFuture<?>[]::new);
    return CompletableFuture.allOf(greetings);
  }

  /** The transport between ranks of one host. */
  private Transport localTransport() {
    return TransportChoice.local(communicator.device().kind());
  }

  private PeerConnections connectOnSetup(List<NonblockingFuture<Connection>> links) {
    // The set-up's own deadline is what counts.
    Duration enough = deadline.timeout().plusSeconds(1);
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer == rank()) {
        links.add(null);
        continue;
      }
      Transport transport = choice.between(rank(), peer, devices(), communicator.bootstrap());
      transports = transports.with(transport);
      links.add(
          communicator.connectOnSetup(
              peer, tag, EndpointConfig.of(transport).withConnectTimeout(enough)));
    }
    return this;
  }

  private PeerConnections connected(List<NonblockingFuture<Connection>> links) {
    for (int peer = 0; peer < nRanks(); peer++) {
      connections[peer] = peer == rank() ? null : links.get(peer).join();
    }
    topology = makeTopology();
    return this;
  }

  /** This rank. */
  public int rank() {
    return communicator.bootstrap().rank();
  }

  /** How many ranks. */
  public int nRanks() {
    return communicator.bootstrap().nRanks();
  }

  /** Whose connections these are. */
  public Communicator communicator() {
    return communicator;
  }

  /** The tag of this peers's set-ups. */
  public int tag() {
    return tag;
  }

  /** By when set-ups that are under way must be done. */
  public Deadline deadline() {
    return deadline;
  }

  /** The connection to a peer; null to this rank. */
  public Connection connection(int peer) {
    return connections[peer];
  }

  /** How many threads a kernel of the host device is to have. */
  public int threads() {
    return threads;
  }

  /** The transports of all its connections. */
  public TransportFlags transports() {
    return transports;
  }

  /** Who is where. */
  public RankTopology topology() {
    return topology;
  }

  private RankTopology makeTopology() {
    Bootstrap bootstrap = communicator.bootstrap();
    List<Long> hosts = new ArrayList<>();
    List<Integer> hostOf = new ArrayList<>();
    for (int peer = 0; peer < nRanks(); peer++) {
      long hash = bootstrap.hostHash(peer);
      if (!hosts.contains(hash)) {
        hosts.add(hash);
      }
      hostOf.add(hosts.indexOf(hash));
    }
    boolean gpus = communicator.device().kind() == DeviceKind.CUDA;
    return new RankTopology(
        rank(),
        nRanks(),
        communicator.device().kind(),
        List.copyOf(hostOf),
        choice.only().isEmpty() || choice.only().get() == localTransport(),
        gpus ? devices().stream().mapToInt(DeviceDescription::multiprocessors).min().orElse(0) : 0,
        gpus
            ? devices().stream().mapToInt(DeviceDescription::computeCapability).min().orElse(0)
            : 0,
        gpus ? GpuSharing.mostRanks(devices(), bootstrap) : 1);
  }

  /**
   * Tells every peer of memory of this rank and learns of theirs. The registrations are closed with
   * the peers; at once, on this rank, if it fails.
   *
   * @param own memory of this rank's device, of the same size on every rank
   * @return everybody's, by rank, this rank's among them; {@link InvalidUsage} if one differs in
   *     size, once all ranks have found that. What is chained to it may block
   */
  public CompletableFuture<RegisteredMemory[]> exchange(DeviceBuffer own) {
    RegisteredMemory mine;
    try {
      mine = register(own);
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
    List<NonblockingFuture<RegisteredMemory>> theirs = new ArrayList<>();
    return setup(() -> exchangeOnSetup(mine, theirs))
        .thenApply(done -> collect(mine, theirs))
        .thenCompose(this::requireSameSizes)
        .whenCompleteAsync(
            (all, failure) -> {
              if (failure != null) {
                forget(mine, theirs);
              }
            },
            MAY_BLOCK);
  }

  /**
   * Sets up what an algorithm builds on the peers's connections, semaphores above all.
   *
   * @param queueing queues it, in the same order on all ranks
   * @return completes when it is set up
   */
  public CompletableFuture<Void> setup(Runnable queueing) {
    return communicator
        .setup(
            Deadline.after(deadline.timeout()),
            () -> {
              queueing.run();
              return queueing;
            })
        .thenAcceptAsync(done -> {}, MAY_BLOCK);
  }

  /** What device each rank has, by rank. */
  List<DeviceDescription> devices() {
    return List.of(devices);
  }

  /** Whether a peer's memory is mapped here; false for this rank. */
  public boolean isMapped(int peer) {
    return connections[peer] != null && isMapped(connections[peer]);
  }

  private static boolean isMapped(Connection connection) {
    return connection.transport() == Transport.SHM || connection.transport() == Transport.CUDA_IPC;
  }

  /** Registers a buffer for all transports in use; closed with this. */
  private RegisteredMemory register(DeviceBuffer buffer) {
    TransportFlags flags =
        transports.equals(TransportFlags.NONE) ? TransportFlags.of(localTransport()) : transports;
    RegisteredMemory memory = communicator.registerMemory(buffer, flags);
    registered.add(memory);
    return memory;
  }

  /** Queues telling every peer of a memory of this rank, and learning of theirs, by rank. */
  private void exchangeOnSetup(
      RegisteredMemory mine, List<NonblockingFuture<RegisteredMemory>> theirs) {
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer == rank()) {
        theirs.add(null);
      } else {
        communicator.sendMemoryOnSetup(mine, peer, tag);
        theirs.add(communicator.recvMemoryOnSetup(peer, tag));
        received.add(theirs.get(peer));
      }
    }
  }

  /** The memories that an exchange brought, by rank, with this rank's own among them. */
  private RegisteredMemory[] collect(
      RegisteredMemory mine, List<NonblockingFuture<RegisteredMemory>> theirs) {
    RegisteredMemory[] all = new RegisteredMemory[nRanks()];
    for (int peer = 0; peer < nRanks(); peer++) {
      all[peer] = peer == rank() ? mine : theirs.get(peer).join();
    }
    return all;
  }

  /** Kernels would write beyond the end of the smallest. */
  private CompletableFuture<RegisteredMemory[]> requireSameSizes(RegisteredMemory[] all) {
    long size = all[rank()].size();
    for (int peer = 0; peer < nRanks(); peer++) {
      if (all[peer].size() != size) {
        InvalidUsage reason =
            new InvalidUsage(
                "collectives tag="
                    + tag
                    + ": the buffer of rank "
                    + rank()
                    + " has "
                    + size
                    + " bytes, that of rank "
                    + peer
                    + " has "
                    + all[peer].size()
                    + "; give buffers of the same size on every rank");
        // Every rank finds one that differs. Who closes its buffer then must not take it from a
        // peer that is still mapping it.
        return meetAll()
            .handle(
                (met, failure) -> {
                  throw reason;
                });
      }
    }
    return CompletableFuture.completedFuture(all);
  }

  /** Closes memories that an exchange brought before the peers is closed. */
  void forget(RegisteredMemory[] memories) {
    Closing.all(
        Arrays.stream(memories).<AutoCloseable>map(memory -> () -> forget(memory)).toList());
  }

  /** Closes what a failed exchange brought, and may yet bring. */
  private void forget(RegisteredMemory mine, List<NonblockingFuture<RegisteredMemory>> theirs) {
    received.removeAll(theirs);
    theirs.stream()
        .filter(Objects::nonNull)
        .forEach(memory -> memory.thenAccept(RegisteredMemory::close));
    forget(mine);
  }

  private void forget(RegisteredMemory memory) {
    registered.remove(memory);
    received.removeIf(theirs -> brought(theirs, memory));
    memory.close();
  }

  private static boolean brought(
      NonblockingFuture<RegisteredMemory> theirs, RegisteredMemory memory) {
    return theirs.isDone() && !theirs.isCompletedExceptionally() && theirs.join() == memory;
  }

  /**
   * Completes when a peer has come here too. Meetings of one peers with one peer are in the order
   * of the calls.
   *
   * @param peer another rank
   * @param within how long that may take
   * @return completes then; or why it can't
   */
  public CompletableFuture<Void> meet(int peer, Duration within) {
    return communicator.rendezvous(peer, tag, Deadline.after(within));
  }

  /**
   * {@link #meet} of every peer, within the set-up's time limit. If one does not come, that aborts:
   * others may have met all, and count on this rank.
   */
  CompletableFuture<Void> meetAll() {
    return CompletableFuture.allOf(
            IntStream.range(0, nRanks())
                .filter(peer -> peer != rank())
                .mapToObj(peer -> meet(peer, deadline.timeout()))
                .toArray(CompletableFuture<?>[]::new))
        .whenComplete(
            (met, failure) -> {
              if (failure != null) {
                communicator.abort(FluxCclException.from(failure));
              }
            });
  }

  /**
   * Closes memories now and connections once the peers have come here too, a few seconds later at
   * most: until then they may be waiting for acknowledgements, which end with the connection.
   */
  void leave() {
    Closing.all(this::closeMemories, this::farewell);
  }

  private void farewell() {
    Deadline soon = Deadline.after(FAREWELL);
    CompletableFuture<?>[] leaveNotices =
        IntStream.range(0, nRanks())
            .filter(peer -> peer != rank() && !isMapped(peer))
            .mapToObj(peer -> communicator.rendezvous(peer, tag, soon))
            .toArray(CompletableFuture<?>[]::new);
    CompletableFuture.allOf(leaveNotices).whenComplete((done, failure) -> closeConnections());
  }

  @Override
  public void close() {
    Closing.all(this::closeMemories, this::closeConnections);
  }

  private void closeMemories() {
    received.forEach(memory -> memory.thenAccept(RegisteredMemory::close));
    Closing.all(registered);
  }

  private void closeConnections() {
    Closing.all(connections);
  }
}
