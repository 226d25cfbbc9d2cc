// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.LaneDescription.DeviceDescription;
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
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BiConsumer;
import java.util.function.IntConsumer;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * A connection to every other rank, and the memories of all ranks that were exchanged over them:
 * algorithms are built on these. All ranks call its methods in the same order.
 */
@Experimental
public final class PeerConnections implements AutoCloseable {
  private static final Duration LEAVE_TIMEOUT = Duration.ofSeconds(5);

  /** Time that a peer may be unreachable if operations have no time limit. */
  private static final Duration LONGEST_RESUME = Duration.ofSeconds(90);

  private final Communicator communicator;
  private final CollectivesOptions options;
  private final int tag;
  private final Deadline deadline;
  private final TransportChoice choice;
  private final List<DeviceDescription> devices;
  private final int threads;
  private final RankTopology topology;

  private final long[] lanes;

  /** This rank's memories and those of the peers. */
  private final Set<RegisteredMemory> memories = ConcurrentHashMap.newKeySet();

  private Connection[] connections;
  volatile IntConsumer onOtherCall = peer -> {};
  private TransportFlags transports = TransportFlags.NONE;

  /**
   * Describes the connections that {@link #connect} makes.
   *
   * @param choice of transports
   * @param options with the tag of the connections
   * @param deadline by when
   * @param ranks the descriptions of all ranks
   */
  PeerConnections(
      Communicator communicator,
      TransportChoice choice,
      CollectivesOptions options,
      Deadline deadline,
      List<LaneDescription> ranks) {
    this.communicator = communicator;
    this.choice = choice;
    this.options = options;
    this.tag = options.tag();
    this.deadline = deadline;
    this.devices = ranks.stream().map(LaneDescription::device).toList();
    this.threads = ranks.stream().mapToInt(LaneDescription::threads).min().orElse(1);
    this.lanes = ranks.stream().mapToLong(LaneDescription::lane).toArray();
    this.topology = makeTopology();
    this.connections = new Connection[ranks.size()];
  }

  /**
   * Connects to all ranks; on failure, connections already made are closed. Ranks on the host
   * device connect on demand, where the transport can do that.
   */
  CompletableFuture<PeerConnections> connect() {
    List<CompletableFuture<Connection>> links = new ArrayList<>();
    return communicator
        .exchange(tag, "connect(tag=" + tag + ")", this::connectOnDemand, deadline)
        .thenCompose(begun -> communicator.setup(deadline, () -> connectOnSetup(links)))
        .thenApply(ready -> connected(links))
        .whenComplete(
            onFailure(
                () -> {
                  Closing.all(connections);
                  links.forEach(link -> link.thenAccept(Connection::close));
                }));
  }

  private byte[] connectOnDemand() {
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer != rank()) {
        EndpointConfig config = config(peer);
        transports = transports.with(config.transport());
        if (topology.kind() == DeviceKind.HOST) {
          connections[peer] =
              communicator
                  .connectOnDemand(peer, tag, config, lanes[rank()], lanes[peer])
                  .orElse(null);
        }
      }
    }
    return new byte[0];
  }

  private EndpointConfig config(int peer) {
    // Longer than the set-up's own deadline, which is the one that counts.
    Duration enough = deadline.timeout().plusSeconds(1);
    Transport transport = choice.between(rank(), peer, devices, communicator.bootstrap());
    return EndpointConfig.of(transport)
        .withConnectTimeout(enough)
        .withResumeTimeout(resumeTimeout())
        .withChecksums(options.checksums());
  }

  /**
   * Returns how long a peer may be out of reach: shorter than an operation, so that the error of an
   * operation in flight names the lost connection.
   */
  private Duration resumeTimeout() {
    return options.timeout().compareTo(Deadline.NO_LIMIT) >= 0
        ? LONGEST_RESUME
        : options.timeout().multipliedBy(9).dividedBy(10);
  }

  private List<CompletableFuture<Connection>> connectOnSetup(
      List<CompletableFuture<Connection>> links) {
    for (int peer = 0; peer < nRanks(); peer++) {
      if (peer != rank() && connections[peer] == null) {
        links.add(communicator.connectOnSetup(peer, tag, config(peer)));
      }
    }
    return links;
  }

  private PeerConnections connected(List<CompletableFuture<Connection>> links) {
    for (CompletableFuture<Connection> link : links) {
      Connection connection = link.join();
      connections[connection.remoteRank()] = connection;
    }
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
        options.maxBlocks(),
        isGpu ? devices.stream().mapToInt(DeviceDescription::computeCapability).min().orElse(0) : 0,
        isGpu ? DeviceDescription.mostRanksPerGpu(devices, bootstrap) : 1,
        isGpu ? DeviceDescription.withoutNvlinkBecause(devices, bootstrap) : "");
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

  CollectivesOptions options() {
    return options;
  }

  /** Returns the number of this lane on each rank. */
  long[] lanes() {
    return lanes;
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

  /**
   * Fails the job, because data has arrived that is not of this rank's call. Waits for nothing:
   * this rank must not use the data, and wait for the abort flag.
   *
   * @param peer the sender
   */
  public void receivedOtherCall(int peer) {
    onOtherCall.accept(peer);
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
   * Sends every peer the description of a memory of this rank and receives theirs. The
   * registrations are closed with these connections; at once, on this rank, if the exchange fails.
   *
   * @param own memory of this rank's device, of the same size on every rank
   * @return the memories of all ranks, by rank; {@link InvalidUsage} if one differs in size, after
   *     all ranks have found that. Continuations may block
   */
  public CompletableFuture<RegisteredMemory[]> exchange(DeviceBuffer own) {
    return exchange(() -> own);
  }

  /**
   * As {@link #exchange(DeviceBuffer)}, with memory that is allocated for it. If a rank can't do
   * that, all ranks end with its reason.
   *
   * @param allocate returns this rank's memory, which the caller closes; may block
   */
  public CompletableFuture<RegisteredMemory[]> exchange(Supplier<DeviceBuffer> allocate) {
    List<RegisteredMemory> exchanged = new CopyOnWriteArrayList<>();
    return communicator
        .exchangeMemory(
            tag, () -> register(allocate.get(), exchanged), Deadline.after(deadline.timeout()))
        .thenApply(all -> keep(all, exchanged))
        .thenCompose(this::requireSameSizes)
        .whenCompleteAsync(onFailure(() -> forget(exchanged)), BlockingTasks.EXECUTOR);
  }

  /** Registers a buffer for all transports in use. */
  private RegisteredMemory register(DeviceBuffer buffer, List<RegisteredMemory> exchanged) {
    TransportFlags flags =
        transports.equals(TransportFlags.NONE)
            ? TransportFlags.of(TransportChoice.local(topology.kind()))
            : transports;
    RegisteredMemory mine = communicator.registerMemory(buffer, flags);
    exchanged.add(mine);
    memories.add(mine);
    return mine;
  }

  private RegisteredMemory[] keep(RegisteredMemory[] all, List<RegisteredMemory> exchanged) {
    exchanged.addAll(List.of(all));
    memories.addAll(exchanged);
    return all;
  }

  /** Refuses memories of different sizes: kernels would write beyond the end of the smallest. */
  private CompletableFuture<RegisteredMemory[]> requireSameSizes(RegisteredMemory[] all) {
    long[] sizes = Arrays.stream(all).mapToLong(RegisteredMemory::size).toArray();
    if (LongStream.of(sizes).distinct().count() == 1) {
      return CompletableFuture.completedFuture(all);
    }
    InvalidUsage reason = differentSizes(sizes);
    // Every rank finds that. A rank that closed its buffer at once would take it from a peer that
    // is still mapping it.
    return awaitAllRanks()
        .handle(
            (met, failure) -> {
              throw reason;
            });
  }

  InvalidUsage differentSizes(long[] sizes) {
    return InvalidUsage.of(
        "collectives tag=%d on rank %d: buffers have %s bytes, by rank; give buffers of the same"
            + " size on every rank",
        tag, rank(), Arrays.toString(sizes));
  }

  /**
   * Sends every rank a short message and receives theirs, within the set-up's time limit. If a rank
   * can't make its message, all ranks end with its reason.
   *
   * @param operation for messages
   * @param own returns this rank's message; may block
   * @return the messages by rank, which are not trusted
   */
  public CompletableFuture<List<byte[]>> exchange(String operation, Supplier<byte[]> own) {
    return communicator.exchange(tag, operation, own, Deadline.after(deadline.timeout()));
  }

  /** Closes memories of an exchange before these connections are closed. */
  void forget(RegisteredMemory[] exchanged) {
    forget(List.of(exchanged));
  }

  private void forget(List<RegisteredMemory> gone) {
    gone.forEach(memories::remove);
    Closing.all(gone);
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

  /** Returns whether bytes may be on their way between this rank and another. */
  public boolean mayHaveTransfers(int peer) {
    return peer != rank() && !isMapped(peer) && connections[peer].isInUse();
  }

  /**
   * Waits until every rank has called this method, within the set-up's time limit. Aborts if a rank
   * has not: other ranks may have continued, and depend on this one.
   */
  CompletableFuture<?> awaitAllRanks() {
    return communicator
        .exchange(tag, new byte[0], Deadline.after(deadline.timeout()))
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
    Closing.all(() -> Closing.all(memories), this::closeConnectionsAfterPeers);
  }

  private void closeConnectionsAfterPeers() {
    CompletableFuture.allOf(
            IntStream.range(0, nRanks())
                .filter(this::mayHaveTransfers)
                .mapToObj(peer -> rendezvous(peer, LEAVE_TIMEOUT))
                .toArray(CompletableFuture<?>[]::new))
        .whenComplete((done, failure) -> Closing.all(connections));
  }

  @Override
  public void close() {
    Closing.all(() -> Closing.all(memories), () -> Closing.all(connections));
  }

  /**
   * The choice of the transport between two ranks. It is the requested one, or else mapped memory
   * within a host. Between hosts it is RDMA if both ends can use it, else ETHERNET. It depends only
   * on the descriptions of the two ranks, and not on their order, so both choose the same.
   *
   * @param only the transport asked for
   * @param networks those that may be used between hosts
   */
  record TransportChoice(Optional<Transport> only, TransportFlags networks) {

    static TransportChoice of(CollectivesOptions options) {
      return new TransportChoice(options.transport(), options.networks());
    }

    /** Returns the transport between ranks of one host. */
    static Transport local(DeviceKind kind) {
      return kind == DeviceKind.CUDA ? Transport.CUDA_IPC : Transport.SHM;
    }

    /**
     * Returns the networks by which other hosts can reach this rank's memory, for its description.
     * None if all ranks are on one host, where networks are not used. May block: it looks for
     * devices.
     */
    TransportFlags usable(Communicator communicator) {
      Bootstrap bootstrap = communicator.bootstrap();
      boolean oneHost =
          IntStream.range(0, bootstrap.nRanks())
              .allMatch(peer -> bootstrap.hostHash(peer) == bootstrap.hostHash(bootstrap.rank()));
      if (oneHost || only.isPresent()) {
        return TransportFlags.NONE;
      }
      return TransportFlags.of(
          networks.asSet().stream()
              .filter(network -> communicator.unusableBecause(network).isEmpty())
              .toArray(Transport[]::new));
    }

    /**
     * Returns the transport between two ranks.
     *
     * @param a the one rank
     * @param b the other
     * @param devices of all ranks, by rank
     * @param bootstrap knows which ranks share a host
     */
    Transport between(int a, int b, List<DeviceDescription> devices, Bootstrap bootstrap) {
      if (devices.get(a).kind() != devices.get(b).kind()) {
        throw InvalidUsage.of(
            "collectives: rank %d is on a device of kind %s, rank %d on one of kind %s; give all"
                + " ranks the same kind, for example by FLUXCCL_DEVICE",
            a, devices.get(a).kind(), b, devices.get(b).kind());
      }
      if (only.isPresent()) {
        return only.get();
      }
      if (bootstrap.hostHash(a) == bootstrap.hostHash(b)) {
        return local(devices.get(a).kind());
      }
      return network(a, localRank(a, bootstrap), b, localRank(b, bootstrap), devices);
    }

    private static int localRank(int rank, Bootstrap bootstrap) {
      return (int)
          IntStream.range(0, rank)
              .filter(other -> bootstrap.hostHash(other) == bootstrap.hostHash(rank))
              .count();
    }

    /** Returns the RDMA device of the ranks' rail, among those that both have, or ETHERNET. */
    static Transport network(
        int a, int localA, int b, int localB, List<DeviceDescription> devices) {
      List<Transport> common =
          devices.get(a).networks().asSet().stream()
              .filter(devices.get(b).networks()::contains)
              .toList();
      List<Transport> rails = common.stream().filter(t -> t != Transport.ETHERNET).toList();
      if (!rails.isEmpty()) {
        Transport rail = Transport.rankToIbDevice(localA, localB, rails.size());
        return rails.get(rail.ordinal() - Transport.IB0.ordinal());
      }
      if (common.contains(Transport.ETHERNET)) {
        return Transport.ETHERNET;
      }
      throw InvalidUsage.of(
          "collectives: rank %d can use %s to other hosts, rank %d can use %s; 'fluxccl info' tells"
              + " why not more, FLUXCCL_NETWORK allows more",
          a, devices.get(a).networks(), b, devices.get(b).networks());
    }
  }
}
