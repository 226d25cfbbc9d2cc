package io.fluxccl.communicator;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.TransportProvider;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.scheduler.Schedulers;

/**
 * Connections and memory between the ranks of a job. {@code …OnSetup} methods queue an operation
 * and return a future; {@link #setup()} runs all that is queued and may be called again for more.
 * Operations of one peer and tag meet in the order in which both sides queued them.
 *
 * <p>When a rank dies, or any rank aborts, the communicator has failed, once and for all: {@link
 * #failed()} completes with the reason, waiting kernels give up, pending and new operations end
 * with it.
 *
 * <p>Thread-safe, but queue in one order per peer and tag. Owns neither the bootstrap nor the
 * device.
 */
public final class Communicator implements AutoCloseable {
  private static final Logger LOGGER = LoggerFactory.getLogger(Communicator.class);

  private static final long DEATH_NOTICE_MILLIS = 300;

  /**
   * Who maps memory or opens a transport waits for the operating system, and a GPU's driver may
   * make him wait for kernels, and those for a peer that this JVM's bootstrap thread serves.
   */
  private static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  private final Bootstrap bootstrap;
  private final Device device;
  private final CommunicatorOptions options;
  private final SetupMessages messages;
  private final TransportContexts transports;
  private final Memories memories;
  private final Ending ending;
  private final SetupQueue setups;
  private final SetupTurns turns = new SetupTurns();
  private final HostLoad.Share hostLoad;
  private final FailureRelay bootstrapFailure = new FailureRelay(this::failElsewhere);
  private final Map<Connection, Boolean> connections = new ConcurrentHashMap<>();

  /** The first reason to abort that waits, or has waited, for the bootstrap's word. */
  private final AtomicReference<FluxCclException> suspicion = new AtomicReference<>();

  private volatile boolean closed;

  private Communicator(
      Bootstrap bootstrap,
      Device device,
      CommunicatorOptions options,
      Supplier<? extends Iterable<TransportProvider>> providers) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.options = options;
    this.messages = new SetupMessages(bootstrap, MAY_BLOCK);
    int rank = bootstrap.rank();
    this.transports =
        new TransportContexts(
            new TransportEnvironment(
                rank,
                bootstrap.nRanks(),
                bootstrap.hostHash(rank),
                bootstrap.processHash(rank),
                device,
                bootstrap.hostAddress()),
            providers);
    this.memories = new Memories(bootstrap, transports);
    this.ending = new Ending(new AbortFlag(device));
    this.setups = new SetupQueue(ending::reason);
    this.hostLoad = HostLoad.add(processesOnHost(bootstrap));
    bootstrap.failure().thenAccept(bootstrapFailure);
  }

  private static int processesOnHost(Bootstrap bootstrap) {
    long host = bootstrap.hostHash(bootstrap.rank());
    return (int)
        IntStream.range(0, bootstrap.nRanks())
            .filter(rank -> bootstrap.hostHash(rank) == host)
            .mapToLong(bootstrap::processHash)
            .distinct()
            .count();
  }

  /** A communicator of the bootstrap's ranks with the default options. */
  public static Communicator create(Bootstrap bootstrap, Device device) {
    return create(bootstrap, device, CommunicatorOptions.DEFAULT);
  }

  /**
   * A communicator of the bootstrap's ranks.
   *
   * @param bootstrap initialised; stays the caller's
   * @param device where this rank's memory is; stays the caller's
   * @param options how it behaves
   * @return the communicator
   */
  public static Communicator create(
      Bootstrap bootstrap, Device device, CommunicatorOptions options) {
    return create(bootstrap, device, options, TransportContexts::installed);
  }

  /** With transports of one's own choice. */
  static Communicator create(
      Bootstrap bootstrap,
      Device device,
      CommunicatorOptions options,
      Supplier<? extends Iterable<TransportProvider>> providers) {
    return new Communicator(bootstrap, device, options, providers);
  }

  /** The bootstrap that it was made of. */
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  /** The device that it was made for. */
  public Device device() {
    return device;
  }

  /** The word that kernels watch while they wait. */
  public AbortFlag abortFlag() {
    return ending.abortFlag();
  }

  /**
   * Queues a connection to a peer, which must queue one to this rank with the same tag.
   *
   * @param peer the rank; may be this one
   * @param tag 0 to 2^24 - 1, to tell several connections apart
   * @param config the transport and its parameters
   * @return the connection, once {@link #setup()} has been called and the peer has answered
   * @throws InvalidUsage if the rank or the tag is out of range
   */
  public NonblockingFuture<Connection> connectOnSetup(int peer, int tag, EndpointConfig config) {
    messages.checkPeer(peer, tag);
    Connector connector =
        new Connector(
            messages,
            () -> transports.of(config.transport()).createEndpoint(peer, tag, config),
            this::keep,
            peer,
            tag,
            config);
    onSetup(connector);
    return connector.result();
  }

  private void keep(Connection connection) {
    connections.put(connection, true);
    // One that has failed stays for the dump; one that was closed is of no interest to anybody.
    connection
        .failed()
        .thenAccept(
            reason -> {
              if (reason instanceof Aborted) {
                connections.remove(connection);
              }
            });
  }

  /**
   * Why a transport can't be used for memory of this communicator's device. May block: it looks for
   * devices and libraries.
   *
   * @param transport any
   * @return what is missing and how to get it, or empty when it can be used as far as is known
   */
  public Optional<String> unusableBecause(Transport transport) {
    return transports.unusableBecause(transport);
  }

  /**
   * Makes memory of this rank reachable by the given transports. Name all that will be used at
   * once.
   *
   * @param buffer of this communicator's device
   * @param flags the transports, at least one
   * @return the registered memory; the caller closes it before or with the communicator
   * @throws InvalidUsage if a transport is not available or can't reach such memory
   */
  public RegisteredMemory registerMemory(DeviceBuffer buffer, TransportFlags flags) {
    return memories.register(buffer, flags);
  }

  /**
   * Queues telling a peer how to reach a memory of this rank; the peer queues {@link
   * #recvMemoryOnSetup} with the same tag.
   *
   * @throws InvalidUsage if the rank or the tag is out of range, or the memory is not of this rank
   */
  public void sendMemoryOnSetup(RegisteredMemory memory, int peer, int tag) {
    messages.checkPeer(peer, tag);
    if (!memory.isLocal()) {
      throw new InvalidUsage(
          "sendMemoryOnSetup(rank="
              + peer
              + ", tag="
              + tag
              + "): the memory belongs to rank "
              + memory.rank());
    }
    onSetup(new MemorySender(messages, memory, peer, tag));
  }

  /**
   * Queues learning how to reach a memory of a peer, which queues {@link #sendMemoryOnSetup} with
   * the same tag.
   *
   * @return the memory, once {@link #setup()} has been called and the peer has sent; the caller
   *     closes it
   * @throws InvalidUsage if the rank or the tag is out of range
   */
  public NonblockingFuture<RegisteredMemory> recvMemoryOnSetup(int peer, int tag) {
    messages.checkPeer(peer, tag);
    MemoryReceiver receiver = new MemoryReceiver(messages, memories::open, peer, tag);
    onSetup(receiver);
    return receiver.result();
  }

  /** Queues an operation of another layer; it ends at once when this communicator has failed. */
  public void onSetup(Setupable operation) {
    setups.add(operation);
  }

  /** {@link #setup(java.time.Duration)} with the time limit of the options. */
  public CompletableFuture<Void> setup() {
    return setup(options.setupTimeout());
  }

  /**
   * Runs everything queued so far. Blocks no thread; each operation's own future completes as soon
   * as its peer has answered.
   *
   * <p>An operation that failed here may have told its peer already, whose next one with that tag
   * takes it for its own: after a time-out, try again with tags that were not used yet.
   *
   * @param timeout how long that may take
   * @return completes when all are done, or with the first error in queue order once all have
   *     ended; on a thread where what follows may block
   */
  public CompletableFuture<Void> setup(java.time.Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    // Not on the bootstrap's thread: a continuation that blocks there would wait for itself.
    return setups.run(deadline).whenCompleteAsync((done, reason) -> {}, MAY_BLOCK);
  }

  /**
   * Queues operations and runs them, and no others: what other threads queue and set up meanwhile
   * stays apart.
   *
   * @param deadline by when
   * @param queueing calls {@code …OnSetup} methods, and nothing that waits
   * @param <T> what it gives
   * @return what {@code queueing} gave, once all that it queued is done; or the first error
   */
  public <T> CompletableFuture<T> setup(Deadline deadline, Supplier<T> queueing) {
    return setups.run(deadline, queueing);
  }

  /**
   * Begins a set-up of several steps once those begun before it for the same tag have ended, so
   * that their steps meet in the same order on all ranks.
   *
   * @param tag of the set-up
   * @param steps begins it; what it throws fails the result
   * @param <T> what it gives
   * @return what the steps give
   */
  public <T> CompletableFuture<T> inTurn(int tag, Supplier<CompletableFuture<T>> steps) {
    return turns.run(tag, steps);
  }

  /**
   * Waits until a peer calls this method with the same tag. Then neither rank needs what they set
   * up together any longer.
   *
   * @param peer the rank
   * @param tag as in {@link #connectOnSetup}
   * @param deadline by when
   * @return completes when the peer has called it too; with the communicator's failure, or when the
   *     deadline has passed
   */
  public CompletableFuture<Void> rendezvous(int peer, int tag, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return inFlight(messages.rendezvous(peer, tag, deadline));
  }

  /**
   * Exchanges a short message with one peer, which calls this method with the same tag. Exchanges
   * of one peer and tag match in the order of the calls.
   *
   * @param peer the other rank
   * @param tag as in connections; exchanges have tags of their own
   * @param mine this rank's message
   * @param deadline by when the peer must have called it
   * @return the peer's message, which is not trusted: check it
   */
  public CompletableFuture<byte[]> exchange(int peer, int tag, byte[] mine, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return inFlight(messages.exchange(peer, tag, mine, deadline));
  }

  /**
   * Exchanges a short message with all ranks, each of which calls this method with the same tag: an
   * all-gather on the host. Exchanges with different tags may run at once and begin in any order;
   * exchanges with the same tag match in the order of the calls.
   *
   * @param tag 0 to 2^24 - 1; has nothing to do with the tags of connections
   * @param mine this rank's message
   * @param deadline by when every rank must have called it
   * @return the messages by rank, which are not trusted: check them. Fails with {@link
   *     io.fluxccl.Timeout} that names the first rank that did not call, or with the communicator's
   *     failure. Continuations may block
   */
  public CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    messages.checkTag(tag);
    return inFlight(messages.exchangeAll(tag, mine, deadline));
  }

  /**
   * Tells a peer something short that it has not asked for. Works still when this communicator has
   * ended, as long as the bootstrap has not.
   *
   * @param peer the other rank
   * @param tag as in connections; notices have tags of their own
   * @param notice what to tell
   * @param deadline by when
   * @return completes when it is on its way
   */
  public CompletableFuture<Void> sendNotice(int peer, int tag, byte[] notice, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return messages.sendNotice(peer, tag, notice, deadline);
  }

  /**
   * The next of a peer's notices; they come in the order in which they were sent.
   *
   * @param peer the other rank
   * @param tag as the peer names
   * @param deadline by when
   * @return what the peer told; not trusted, so check it
   */
  public CompletableFuture<byte[]> recvNotice(int peer, int tag, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return inFlight(messages.recvNotice(peer, tag, deadline));
  }

  /**
   * The rank at the other end of a connection.
   *
   * @throws InvalidUsage if the connection is not of this communicator, or was closed
   */
  public int remoteRankOf(Connection connection) {
    return own(connection).remoteRank();
  }

  /**
   * The tag that a connection was made with.
   *
   * @throws InvalidUsage if the connection is not of this communicator, or was closed
   */
  public int tagOf(Connection connection) {
    return own(connection).tag();
  }

  private Connection own(Connection connection) {
    if (!connections.containsKey(connection)) {
      throw new InvalidUsage("the connection is not one of this communicator, or was closed");
    }
    return connection;
  }

  /**
   * Fails this communicator on every rank. Only the first reason counts.
   *
   * <p>A transport may notice a dead peer a moment before the bootstrap does. So a {@link
   * TransportFailure} that names a rank waits that moment: if the rank is dead, every rank ends
   * with the {@link io.fluxccl.RemoteFailure} that says so. {@link #close()} waits no longer.
   *
   * @param reason why; travels with its kind and rank. Where it blames no rank, the others read in
   *     its message that it is this one's
   */
  public void abort(FluxCclException reason) {
    if (reason instanceof TransportFailure && reason.rank() != FluxCclException.NO_RANK) {
      suspicion.compareAndSet(null, reason);
      CompletableFuture.delayedExecutor(DEATH_NOTICE_MILLIS, TimeUnit.MILLISECONDS)
          .execute(() -> abortNow(reason));
    } else {
      abortNow(reason);
    }
  }

  private void abortNow(FluxCclException reason) {
    if (failure() == null) {
      failElsewhere(reason);
      bootstrap.abort(reason.attributedTo(bootstrap.rank()));
    }
  }

  private void failElsewhere(FluxCclException reason) {
    if (ending.begin(reason)) {
      // What users chained to these futures must hold up neither the bootstrap's thread, which
      // answers heartbeats, nor a proxy's.
      Ending.aside(() -> tell(reason));
    }
  }

  private void tell(FluxCclException reason) {
    ending.tell(reason);
    setups.fail(reason);
  }

  /**
   * Ties an operation to this communicator: when that fails, the operation ends with the same
   * reason.
   *
   * @param operation in flight
   * @param <T> what it gives
   * @return the same future
   */
  public <T> CompletableFuture<T> inFlight(CompletableFuture<T> operation) {
    return ending.tie(operation);
  }

  /** Why this communicator failed, or null while it works. Allocates nothing. */
  public FluxCclException failure() {
    return ending.reason();
  }

  /**
   * Completes, normally and not on a thread that the library needs, with the reason when this
   * communicator fails, or with an {@link Aborted} when it is closed.
   */
  public CompletableFuture<FluxCclException> failed() {
    return ending.told();
  }

  /** Whether it was {@linkplain #close() closed} here, and had not failed before. */
  public boolean isClosed() {
    return closed;
  }

  /** Who waits for whom, since when; for a person, several lines. */
  public String dump() {
    return CommunicatorDump.of(this, setups, connections.keySet());
  }

  /**
   * Ends what is queued or pending with {@link Aborted}, or with the reason of an {@link #abort}
   * that the others have not been told yet; closes connections and transports. Waits for nothing.
   * Idempotent.
   */
  @Override
  public void close() {
    Aborted reason =
        new Aborted(
            bootstrap.rank(), "the communicator of rank " + bootstrap.rank() + " was closed");
    Thread closer = Thread.currentThread();
    // What can't be closed keeps nothing else from it.
    Closing.all(
        this::tellSuspicion,
        () -> end(reason),
        bootstrapFailure::stop,
        hostLoad::remove,
        // Kernels in flight give up now; the memory that they look at goes when they are done.
        () -> device.whenEnqueuedWorkIsDone(() -> closeParts(closer)));
  }

  /** Or the others would take this for leaving in good order, and wait for what never comes. */
  private void tellSuspicion() {
    FluxCclException suspected = suspicion.get();
    if (suspected != null) {
      abortNow(suspected);
    }
  }

  private void end(Aborted reason) {
    if (ending.begin(reason)) {
      closed = true;
      tell(reason);
    }
  }

  private void closeParts(Thread closer) {
    try {
      Closing.all(() -> Closing.all(connections.keySet()), transports, ending);
    } catch (Throwable e) {
      if (Thread.currentThread() == closer) {
        throw e;
      }
      // The device's thread has no use for it: its next completion would fail.
      LOGGER.warn(
          "the communicator of rank {} is closed, but not all of it could be", bootstrap.rank(), e);
    }
  }
}
