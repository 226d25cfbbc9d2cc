// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.TransportProvider;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Connections and memory between the ranks of a job. Methods named {@code …OnSetup} queue an
 * operation and return a future; {@link #setup()} runs all that is queued and may be called again
 * for more. Operations of one peer and tag match in the order in which both sides queued them.
 *
 * <p>When a rank dies, or any rank aborts, the communicator fails, once and for all: {@link
 * #failed()} completes with the reason, waiting kernels give up, pending and new operations fail.
 *
 * <p>Thread-safe, but queue in one order per peer and tag. Owns neither the bootstrap nor the
 * device.
 */
public final class Communicator extends PeerMessages implements AutoCloseable {
  private static final Logger LOGGER = LoggerFactory.getLogger(Communicator.class);

  private final Bootstrap bootstrap;
  private final Device device;
  private final CommunicatorOptions options;
  private final TransportContexts transports;
  private final Memories memories;
  private final Lifecycle lifecycle;
  private final AbortFlag abortFlag;
  private final SetupQueue setups;
  private final FailedState failedState;
  private final HostProcessCount hostLoad;

  /** Cancelled on close: a bootstrap may outlive many communicators. */
  private final CompletableFuture<FluxCclException> bootstrapFailure;

  private final Connections connections;
  private final CommunicatorDump dump;
  private final AtomicInteger stepLoops = new AtomicInteger();

  private Communicator(
      Bootstrap bootstrap,
      Device device,
      CommunicatorOptions options,
      Supplier<? extends Iterable<TransportProvider>> providers) {
    super(new SetupMessages(bootstrap, BlockingTasks.EXECUTOR));
    this.bootstrap = bootstrap;
    this.device = device;
    this.options = options;
    int rank = bootstrap.rank();
    this.lifecycle = new Lifecycle("the communicator of rank " + rank);
    // Closed in reverse order: connections, transports, the abort flag.
    this.abortFlag = lifecycle.own(new AbortFlag(device));
    this.transports =
        lifecycle.own(
            new TransportContexts(TransportContexts.environment(bootstrap, device), providers));
    this.connections = lifecycle.own(new Connections(messages, transports, this::abort));
    this.memories = lifecycle.own(new Memories(bootstrap, device, transports));
    this.setups = new SetupQueue(lifecycle::failure, this::verdict);
    this.failedState = new FailedState(lifecycle, bootstrap, abortFlag, setups);
    this.hostLoad = HostProcessCount.add(bootstrap);
    this.bootstrapFailure = bootstrap.failure();
    bootstrapFailure.thenAccept(failedState::enter);
    this.dump = lifecycle.own(new CommunicatorDump(this, setups, connections::all, options));
    failed().thenAccept(dump::failed);
  }

  /** Creates a communicator of the bootstrap's ranks with the default options. */
  public static Communicator create(Bootstrap bootstrap, Device device) {
    return create(bootstrap, device, CommunicatorOptions.DEFAULT);
  }

  /**
   * Creates a communicator of the bootstrap's ranks.
   *
   * @param bootstrap initialised; stays the caller's
   * @param device holds this rank's memory; stays the caller's
   * @param options time limits
   */
  public static Communicator create(
      Bootstrap bootstrap, Device device, CommunicatorOptions options) {
    return create(bootstrap, device, options, TransportContexts::installed);
  }

  /** Creates a communicator with transports that the caller provides, for tests. */
  public static Communicator create(
      Bootstrap bootstrap,
      Device device,
      CommunicatorOptions options,
      Supplier<? extends Iterable<TransportProvider>> providers) {
    return new Communicator(bootstrap, device, options, providers);
  }

  /** Returns the bootstrap that it was created with. */
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  /** Returns the device that it was created for. */
  public Device device() {
    return device;
  }

  /** Returns the flag that kernels watch while they wait. */
  public AbortFlag abortFlag() {
    return abortFlag;
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
    Connector connector = connections.onSetup(peer, tag, config);
    onSetup(connector);
    return connector.result();
  }

  /** Queues a connection with the defaults of a transport; otherwise as the method above. */
  public NonblockingFuture<Connection> connectOnSetup(int peer, int tag, Transport transport) {
    return connectOnSetup(peer, tag, EndpointConfig.of(transport));
  }

  /**
   * Returns a connection to a peer that the two ends make when one of them first posts; the peer
   * must call this method, too. Until then it costs no socket and no message. If they can't connect
   * within the time limit of {@code config}, this communicator aborts.
   *
   * @param peer another rank
   * @param tag as in {@link #connectOnSetup}; connections on demand have tags of their own
   * @param own the number of this rank's user of the connection, which has been sent to the peer
   * @param theirs the number that the peer has sent
   * @return the connection; empty if the transport connects at set-up only
   */
  public Optional<Connection> connectOnDemand(
      int peer, int tag, EndpointConfig config, long own, long theirs) {
    messages.checkPeer(peer, tag);
    return connections.onDemand(peer, tag, config, new OnDemandConnect.Numbers(own, theirs));
  }

  /**
   * Returns why a transport can't be used for memory of this communicator's device. May block: it
   * looks for devices and libraries.
   *
   * @param transport any
   * @return what is missing and how to get it, or empty when it can be used as far as is known
   */
  public Optional<String> unusableBecause(Transport transport) {
    return transports.unusableBecause(transport);
  }

  /**
   * Makes memory of this rank reachable by the given transports; name all that will be used.
   *
   * @param buffer of this communicator's device, or of its {@link #hostDevice()}
   * @param flags the transports, at least one
   * @return the registered memory; the caller closes it before or with the communicator
   * @throws InvalidUsage if a transport is not available or can't reach such memory
   */
  public RegisteredMemory registerMemory(DeviceBuffer buffer, TransportFlags flags) {
    return memories.register(buffer, flags);
  }

  /**
   * Queues sending the description of a memory of this rank to a peer, which queues {@link
   * #recvMemoryOnSetup} with the same tag.
   *
   * @throws InvalidUsage if the rank or the tag is out of range, or the memory is not of this rank
   */
  public void sendMemoryOnSetup(RegisteredMemory memory, int peer, int tag) {
    messages.checkPeer(peer, tag);
    if (!memory.isLocal()) {
      throw InvalidUsage.of(
          "sendMemoryOnSetup(rank=%s, tag=%s): the memory belongs to rank %s",
          peer, tag, memory.rank());
    }
    onSetup(new PeerSetup.MemorySender(messages, memory, peer, tag));
  }

  /**
   * Queues opening a memory of a peer, which queues {@link #sendMemoryOnSetup} with the same tag.
   *
   * @return the memory, once {@link #setup()} has been called and the peer has sent; the caller
   *     closes it
   * @throws InvalidUsage if the rank or the tag is out of range
   */
  public NonblockingFuture<RegisteredMemory> recvMemoryOnSetup(int peer, int tag) {
    messages.checkPeer(peer, tag);
    PeerSetup.MemoryReceiver receiver =
        new PeerSetup.MemoryReceiver(messages, memories::open, peer, tag);
    onSetup(receiver);
    return receiver.result();
  }

  /** Queues an operation of another layer; it fails at once when this communicator has failed. */
  public void onSetup(SetupOperation operation) {
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
   * <p>An operation that failed here may have sent its message already. The peer's next operation
   * with that tag would receive it, so after a time-out try again with unused tags.
   *
   * @param timeout how long that may take
   * @return completes when all are done, or with the first error in queue order once all have
   *     ended. Continuations may block
   */
  public CompletableFuture<Void> setup(java.time.Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    // Not on the bootstrap's thread: a continuation that blocks there would wait for itself.
    return setups.run(deadline).whenCompleteAsync((done, reason) -> {}, BlockingTasks.EXECUTOR);
  }

  /**
   * Queues operations and runs them, and none that other threads queue in the meantime.
   *
   * @param deadline by when
   * @param queueing calls {@code …OnSetup} methods, and nothing that waits
   * @param <T> the type of its result
   * @return the result of {@code queueing}, once all that it queued is done; or the first error
   */
  public <T> CompletableFuture<T> setup(Deadline deadline, Supplier<T> queueing) {
    return setups.run(deadline, queueing);
  }

  /**
   * Begins a set-up of several steps once those begun before it for the same tag have ended, so
   * that their steps match in the same order on all ranks.
   *
   * @param tag of the set-up
   * @param steps begins it; an exception that it throws fails the result
   * @param <T> the type of the result
   * @return the result of the steps
   */
  public <T> CompletableFuture<T> inTurn(int tag, Supplier<CompletableFuture<T>> steps) {
    return setups.inTurn(tag, steps);
  }

  /**
   * Returns the rank at the other end of a connection.
   *
   * @throws InvalidUsage if the connection is not of this communicator, or was closed
   */
  public int remoteRankOf(Connection connection) {
    return connections.require(connection).remoteRank();
  }

  /**
   * Returns the tag that a connection was created with.
   *
   * @throws InvalidUsage if the connection is not of this communicator, or was closed
   */
  public int tagOf(Connection connection) {
    return connections.require(connection).tag();
  }

  /** Returns the number of the next step loop, from 0. */
  @Experimental
  public int nextStepLoop() {
    return stepLoops.getAndIncrement();
  }

  /**
   * Fails this communicator on every rank. Only the first reason counts.
   *
   * <p>A transport may notice a dead peer a moment before the bootstrap does. So a {@link
   * io.fluxccl.TransportFailure} that names another rank waits up to a second: if the rank is dead,
   * every rank fails with the {@link io.fluxccl.RemoteFailure} that names it. {@link #close()}
   * waits no longer.
   *
   * @param reason why; its kind, rank and message are sent to the other ranks. If it names no rank,
   *     they read in its message on which rank it occurred
   */
  public void abort(FluxCclException reason) {
    failedState.abort(reason);
  }

  /**
   * Ties an operation to this communicator: when that fails, the operation fails with the same
   * reason.
   *
   * @param operation in flight
   * @param <T> the type of its result
   * @return the same future
   */
  @Override
  public <T> CompletableFuture<T> inFlight(CompletableFuture<T> operation) {
    return failedState.tie(operation);
  }

  /**
   * Returns the reason of a failure. For a {@link io.fluxccl.TransportFailure}, {@link
   * io.fluxccl.RemoteFailure} or {@link Aborted} that names another rank, this is the failure of
   * this communicator, if it fails within a second: the death of that rank, or what it threw before
   * it left.
   */
  @Override
  @Experimental
  public CompletableFuture<FluxCclException> verdict(FluxCclException reason) {
    return failedState.verdict(reason);
  }

  @Override
  Memories memories() {
    return memories;
  }

  /** Returns the {@link Connection#interruption()} of a connection whose link is down, or empty. */
  public Optional<FluxCclException> interruption() {
    return connections.interruption();
  }

  /** Returns why this communicator failed, or null while it works. Allocates nothing. */
  public FluxCclException failure() {
    return lifecycle.failure();
  }

  /**
   * Returns a future that completes, normally and not on a thread that the library needs, with the
   * reason when this communicator fails, or with an {@link Aborted} when it is closed.
   */
  public CompletableFuture<FluxCclException> failed() {
    return failedState.failed();
  }

  /** Returns whether it was {@linkplain #close() closed} here, and had not failed before. */
  public boolean isClosed() {
    return failedState.isClosed();
  }

  /** Returns a future that completes when this is closed, before what it owns is. */
  public CompletableFuture<Void> closed() {
    return failedState.closed();
  }

  /** Returns a text of several lines: which operation waits for which rank, and since when. */
  public String dump() {
    return dump.text();
  }

  /** Returns the recorder of the last calls of this communicator's collectives. */
  public FlightRecorder recorder() {
    return dump.recorder();
  }

  /**
   * Fails pending operations with {@link Aborted}, or with the reason of an {@link #abort} of which
   * the other ranks have not been notified yet; closes connections and transports. Waits for
   * nothing. Idempotent.
   */
  @Override
  public void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    Thread closer = Thread.currentThread();
    Closing.all(
        failedState::close,
        () -> bootstrapFailure.cancel(false),
        hostLoad,
        // Kernels in flight give up now; the memory that they read is released when they are done.
        () -> device.whenEnqueuedWorkIsDone(() -> closeChildren(closer)));
  }

  private void closeChildren(Thread closer) {
    try {
      lifecycle.closeChildren();
    } catch (Throwable e) {
      if (Thread.currentThread() == closer) {
        throw e;
      }
      // Not thrown on the device's thread, where the next completion would fail with it.
      LOGGER.warn(
          "rank {}: closing the communicator failed; some of its resources were not released",
          bootstrap.rank(),
          e);
    }
  }

  /**
   * The number of processes on this host that are ranks of one open communicator. The largest
   * number of all open communicators counts, since this process may be in several jobs.
   * Thread-safe.
   */
  static final class HostProcessCount implements AutoCloseable {
    // Guarded by itself.
    private static final List<HostProcessCount> OPEN = new ArrayList<>();

    private final int processes;

    private HostProcessCount(int processes) {
      this.processes = processes;
    }

    /** Adds the processes of a job on this host. */
    static HostProcessCount add(Bootstrap bootstrap) {
      long host = bootstrap.hostHash(bootstrap.rank());
      long processes =
          IntStream.range(0, bootstrap.nRanks())
              .filter(rank -> bootstrap.hostHash(rank) == host)
              .mapToLong(bootstrap::processHash)
              .distinct()
              .count();
      return add((int) processes);
    }

    static HostProcessCount add(int processes) {
      HostProcessCount load = new HostProcessCount(processes);
      synchronized (OPEN) {
        OPEN.add(load);
        update();
      }
      return load;
    }

    /** Idempotent. */
    @Override
    public void close() {
      synchronized (OPEN) {
        OPEN.remove(this);
        update();
      }
    }

    private static void update() {
      SpinPolicy.setProcessesOnHost(OPEN.stream().mapToInt(load -> load.processes).max().orElse(1));
    }
  }
}
