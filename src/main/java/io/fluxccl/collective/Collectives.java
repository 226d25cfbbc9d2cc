// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.DeviceView;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * The operations in which all ranks take part, as cold Monos: subscribing enqueues, and nothing
 * blocks. Every rank must subscribe to the same operations in the same order; operations of one
 * {@code Collectives} run in that order, those of different {@linkplain #lane lanes} at the same
 * time. Any thread may use it.
 *
 * <pre>{@code
 * collectives.allReduce(x, DataType.FLOAT16, ReduceOp.SUM)
 *     .then(collectives.allGather(y, all, count, DataType.FLOAT32))
 *     .subscribe();
 * }</pre>
 *
 * <p>A Mono completes when this rank's output is complete and its input may be overwritten. By
 * default continuations run on the library's completion thread, where blocking is refused, or on
 * the subscriber's thread if all is done by the time it has subscribed; {@link
 * CollectivesOptions#withScheduler} moves them.
 *
 * <p>Subscribing enqueues, whatever the subscriber does next. A GPU takes some hundred operations
 * that are enqueued and not done; beyond that, subscribing blocks until one is done. Cancelling
 * detaches the subscriber: the operation continues on every rank, in the same order, and this
 * subscriber gets no more signals. The operation's buffers are in use, and its time limit applies,
 * until it is done. {@link Communicator#abort} ends a job on purpose. An operation that is not done
 * within its time limit aborts the communicator on every rank, with the reason and the rank: peers
 * may already be reading and writing memory. With {@link CollectivesOptions#withAbortOnCancel},
 * cancelling an operation in flight also aborts the communicator.
 *
 * <p>Shapes, and which buffers may overlap, are in {@link CollectiveCall}. Counts of 0 are allowed.
 * Any buffer of the communicator's device can be used. Peers read and write a buffer that every
 * rank has {@linkplain #register registered} directly, which is faster for large sizes.
 */
public final class Collectives implements ReactiveOperations, AutoCloseable {
  /** Tag of the exchanges of lane 0, from which those of other lanes count down. */
  private static final int BYTES_TAG = (1 << 24) - 1;

  final Lane lane;
  private final AtomicInteger lanes;

  private Collectives(Lane lane, AtomicInteger lanes) {
    this.lane = lane;
    this.lanes = lanes;
  }

  /** {@link #create(Communicator, CollectivesOptions)} with the default options. */
  public static CompletableFuture<Collectives> create(Communicator communicator) {
    return create(communicator, CollectivesOptions.DEFAULT);
  }

  /**
   * Connects to all ranks and prepares the algorithms. Every rank calls it, in the same order among
   * its other set-ups.
   *
   * @param communicator of the ranks that take part
   * @param options how; the same on every rank
   * @return the collectives; the caller closes them, or they close with the communicator. An error
   *     names the rank. Continuations may block
   */
  public static CompletableFuture<Collectives> create(
      Communicator communicator, CollectivesOptions options) {
    return open(
        communicator, options, "collectives-" + options.tag(), new AtomicInteger(options.tag()));
  }

  private static CompletableFuture<Collectives> open(
      Communicator communicator, CollectivesOptions options, String name, AtomicInteger lanes) {
    DeviceStream stream;
    try {
      stream =
          RankLog.of(
              communicator.bootstrap().rank(),
              () -> communicator.device().createStream(name).failFast());
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
    return open(communicator, options, stream, true, lanes);
  }

  private static CompletableFuture<Collectives> open(
      Communicator communicator,
      CollectivesOptions options,
      DeviceStream stream,
      boolean isStreamOwn,
      AtomicInteger lanes) {
    return RankLog.of(
            communicator.bootstrap().rank(),
            () -> LaneOpening.open(communicator, stream, isStreamOwn, options))
        .thenApply(lane -> new Collectives(lane, lanes));
  }

  /**
   * Opens another order of operations with a separate stream: operations there and here don't wait
   * for each other. Every rank calls it, in the same order among its lanes.
   *
   * @param name for diagnostics
   * @return the lane; the caller closes it
   */
  public CompletableFuture<Collectives> lane(String name) {
    CollectivesOptions options = lane.options;
    return open(lane.communicator, options.withTag(lanes.incrementAndGet()), name, lanes);
  }

  /**
   * Opens another order of operations on a stream of the caller's, such as a {@linkplain
   * io.fluxccl.device.cuda.CudaDevice#wrapStream wrapped} one of an engine: operations run in order
   * with what the caller enqueues there. Every rank calls it, or {@link #lane(String)}, in the same
   * order among its lanes.
   *
   * <p>While the owner of a wrapped stream captures it, operations are recorded into the owner's
   * graph: their Monos complete when that is done. Every rank must record the same operations, and
   * replay its graph in the same order among all operations of the lane. Replays have no completion
   * and no time limit here: the owner waits for its graph, and then checks {@link
   * Communicator#failure()} for a failed rank. Keep the lane, the buffers and their registrations
   * open as long as the graph may run:
   *
   * <pre>{@code
   * // BAD: the graph's kernels use memory of the lane
   * lane.close();
   * cuGraphLaunch(graph, stream);
   *
   * // GOOD
   * cuStreamSynchronize(stream);
   * cuGraphExecDestroy(graph);
   * lane.close();
   * }</pre>
   *
   * @param stream of the communicator's device; stays the caller's, and open until the lane is
   *     closed. After a kernel fails, the stream runs no further work ({@link
   *     DeviceStream#failFast})
   * @return the lane; the caller closes it, also after a failure, or it closes with the
   *     communicator. The stream stays open
   */
  public CompletableFuture<Collectives> lane(DeviceStream stream) {
    CollectivesOptions options = lane.options.withTag(lanes.incrementAndGet());
    if (stream == null || stream.device() != lane.communicator.device()) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of(
              "lane on %s; give a stream of the communicator's device, %s",
              stream, lane.communicator.device().description()));
    }
    return open(lane.communicator, options, stream.failFast(), false, lanes);
  }

  /** {@link #named(NamedOptions)} with the default options. */
  @Experimental
  public CompletableFuture<NamedCollectives> named() {
    return named(NamedOptions.DEFAULT);
  }

  /**
   * Opens a lane whose operations match by name, so that ranks may begin them in any order. Every
   * rank calls it, in the same order among its lanes.
   *
   * @param options how small all-reduces are fused
   * @return the named collectives; the caller closes them, or they close with the communicator
   */
  @Experimental
  public CompletableFuture<NamedCollectives> named(NamedOptions options) {
    InvalidUsage.requireNonNull(options, "named collectives", "options");
    return lane("named").thenCompose(opened -> NamedCollectives.open(opened.lane, options));
  }

  /** Returns the communicator whose ranks take part. */
  public Communicator communicator() {
    return lane.communicator;
  }

  /** Returns the options of this lane. */
  @Experimental
  public CollectivesOptions options() {
    return lane.options;
  }

  @Override
  @Experimental
  public Scheduler scheduler() {
    return lane.options.scheduler();
  }

  /** Returns the transports by which this rank reaches the others. */
  public TransportFlags transports() {
    return lane.peers.transports();
  }

  @Override
  public RankTopology topology() {
    return lane.topology;
  }

  /**
   * Returns the stream on which all operations are enqueued: for kernels that run before or after.
   * Completion, time limits and cancelling cover only the operations of this object.
   */
  public DeviceStream stream() {
    return lane.stream;
  }

  /**
   * Registers a buffer with all ranks so that peers can read and write it directly (zero copy).
   * Every rank calls it with a buffer of the same size, in the same order.
   *
   * @param buffer of the communicator's device; stays the caller's, and open until the registration
   *     is closed
   * @return the registration; fails with {@link InvalidUsage} on every rank if sizes differ, after
   *     which all ranks may continue. Callbacks may block
   */
  public CompletableFuture<Registration> register(DeviceBuffer buffer) {
    return lane.registrations.register(InvalidUsage.requireNonNull(buffer, "register", "buffer"));
  }

  /**
   * {@link #register(DeviceBuffer)} of a buffer that steps of all ranks make. They begin after the
   * registrations that this rank has called before, and before those that it calls later.
   */
  @Experimental
  public CompletableFuture<Registration> register(Supplier<CompletableFuture<DeviceBuffer>> steps) {
    return lane.registrations.register(InvalidUsage.requireNonNull(steps, "register", "steps"));
  }

  /** {@link #chunked(CollectiveCall, long, int)} with one chunk ahead. */
  public Flux<Chunk> chunked(CollectiveCall call, long chunkElements) {
    return chunked(call, chunkElements, 1);
  }

  /**
   * Returns a collective in chunks, as a cold Flux that emits each chunk when it is done, in order.
   * So the subscriber works on one chunk while the next is transferred.
   *
   * <p>The subscriber's demand decides which chunks are enqueued: those requested, and {@code
   * prefetch} more. So all ranks must request the same number of chunks: a chunk that one rank has
   * enqueued waits for the other ranks, within the time limit. No other collective may run on this
   * lane in the meantime, or the ranks' orders would differ; open a {@link #lane} for the chunks.
   *
   * <p>After cancelling, no more chunks are enqueued. Chunks in flight, prefetched ones included,
   * continue as the class describes. {@code take(n)} cancels: n chunks and those prefetched are
   * then enqueued, on every rank that takes as many.
   *
   * <p>If a buffer has a share for each rank, a chunk is a range of every share: after a chunk of
   * an all-gather the elements {@code offset} to {@code offset + count - 1} of all ranks' shares
   * are in the output.
   *
   * @param call anything but an all-to-all-v, a send-receive or a barrier
   * @param chunkElements elements of each chunk but the last, in each share; multiples of 16 bytes
   *     are fastest
   * @param prefetch chunks that are enqueued beyond those requested, 0 to 31
   * @return the chunks; fails as the class describes
   * @throws InvalidUsage if the call can't be chunked so
   */
  public Flux<Chunk> chunked(CollectiveCall call, long chunkElements, int prefetch) {
    AlgorithmSelector.requireBuffers(call, topology());
    return ChunkFlux.of(lane, ChunkFlux.ChunkedCall.of(call, chunkElements), prefetch);
  }

  @Override
  public Device device() {
    return lane.communicator.device();
  }

  /** {@link #allGatherBytes(Object, Function, Function)} of bytes. */
  @Experimental
  public Mono<List<byte[]>> allGatherBytes(byte[] value) {
    return allGatherBytes(value, bytes -> bytes, bytes -> bytes);
  }

  /**
   * Gathers one value of every rank at every rank, as a cold Mono. Their bytes may differ in
   * length. They travel over the job's control network, not through the device: for configurations,
   * metrics and the like. Every rank subscribes to these operations in the same order; the order
   * among operations on buffers does not matter.
   *
   * @param value this rank's value
   * @param encode returns the bytes of a value; called on the subscriber's thread
   * @param decode returns the value of bytes
   * @param <T> the type of the values
   * @return the values by rank. Fails with {@link io.fluxccl.Timeout} that names a rank which has
   *     not subscribed within the time limit of the options, or with {@link
   *     io.fluxccl.RemoteFailure} that names a rank which could not encode its value. Neither ends
   *     the job
   */
  @Experimental
  public <T> Mono<List<T>> allGatherBytes(
      T value, Function<? super T, byte[]> encode, Function<byte[], ? extends T> decode) {
    InvalidUsage.requireNonNull(value, "all-gather", "value");
    return exchangeBytes(() -> encode.apply(value))
        .map(all -> all.stream().<T>map(decode::apply).toList());
  }

  /** {@link #broadcastBytes(Object, int, Function, Function)} of bytes. */
  @Experimental
  public Mono<byte[]> broadcastBytes(byte[] value, int root) {
    return broadcastBytes(value, root, bytes -> bytes, bytes -> bytes);
  }

  /**
   * Gives every rank the root's value; otherwise as {@link #allGatherBytes(Object, Function,
   * Function)}.
   *
   * @param value the root's; ignored on other ranks, where it may be null
   */
  @Experimental
  public <T> Mono<T> broadcastBytes(
      T value, int root, Function<? super T, byte[]> encode, Function<byte[], ? extends T> decode) {
    boolean isRoot = root == topology().rank();
    if (root < 0 || root >= topology().nRanks()) {
      throw InvalidUsage.of("broadcast of bytes: root=%d of %d ranks", root, topology().nRanks());
    }
    if (isRoot) {
      InvalidUsage.requireNonNull(value, "broadcast", "value");
    }
    return exchangeBytes(() -> isRoot ? encode.apply(value) : new byte[0])
        .map(all -> decode.apply(all.get(root)));
  }

  private Mono<List<byte[]>> exchangeBytes(Supplier<byte[]> part) {
    Mono<List<byte[]>> exchange =
        Mono.fromFuture(
            () ->
                lane.communicator.exchange(
                    BYTES_TAG - lane.options.tag(),
                    "exchange of bytes",
                    part,
                    Deadline.after(lane.options.timeout())),
            true);
    return lane.options.scheduler() == Schedulers.immediate()
        ? exchange
        : exchange.publishOn(lane.options.scheduler());
  }

  /** {@link #register(DeviceBuffer)} of a view's buffer. */
  public CompletableFuture<Registration> register(DeviceView view) {
    return register(InvalidUsage.requireNonNull(view, "register", "view").buffer());
  }

  /** Returns an empty {@link Pipeline}, whose steps are enqueued and completed as one. */
  public Pipeline pipeline() {
    return new Pipeline(lane, List.of());
  }

  /**
   * Returns any operation as a cold Mono.
   *
   * @param call the operation; its buffers are checked on subscription
   * @return as the class says
   * @throws InvalidUsage if a buffer that this rank needs is null
   */
  public Mono<Void> run(CollectiveCall call) {
    AlgorithmSelector.requireBuffers(call, topology());
    return lane.run(List.of(new Step.Collect(call)), call);
  }

  /**
   * Returns any operation as a cold Mono, with another time limit than the one of the options.
   *
   * @param call the operation; its buffers are checked on subscription
   * @param limit how long it may take, more than zero; {@link io.fluxccl.Deadline#NO_LIMIT}: for
   *     ever
   * @return as the class says
   * @throws InvalidUsage if the limit is not more than zero
   */
  public Mono<Void> run(CollectiveCall call, Duration limit) {
    return lane.run(List.of(new Step.Collect(call)), call, limit);
  }

  @Override
  public Mono<Void> enqueue(CollectiveCall call) {
    return run(call);
  }

  /**
   * Returns the name of the algorithm that a call would take now.
   *
   * @throws InvalidUsage if none supports it
   */
  public String algorithmFor(CollectiveCall call) {
    return lane.algorithms.nameFor(call);
  }

  /**
   * Returns the names of all algorithms that support a call, in the same order on every rank;
   * without those that are less exact ({@link CollectiveAlgorithm#isExact}).
   *
   * @param call bound to this rank's buffers
   */
  public List<String> algorithmsFor(CollectiveCall call) {
    return lane.algorithms.namesFor(call);
  }

  /**
   * Prefers an algorithm for the calls that it supports, enqueued or recorded from now on. Call it
   * on every rank between the same calls.
   *
   * @param collective the operation
   * @param algorithm its name; empty: the choice of the tuning file and the estimates again
   * @throws InvalidUsage if there is no algorithm of that name
   */
  public void prefer(Collective collective, Optional<String> algorithm) {
    lane.algorithms.prefer(collective, algorithm);
  }

  /**
   * Closes connections and frees memory, once operations in flight have ended. Waits for nothing.
   * Idempotent.
   */
  @Override
  public void close() {
    lane.close();
  }
}
