package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.transport.TransportFlags;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * The operations in which all ranks take part, as cold Monos: subscribing enqueues, and nothing
 * blocks. Every rank must subscribe to the same operations in the same order; operations of one
 * {@code Collectives} run in that order, those of different {@linkplain #lane lanes} at the same
 * time. Threads may share it.
 *
 * <pre>{@code
 * collectives.allReduce(x, DataType.FLOAT16, ReduceOp.SUM)
 *     .then(collectives.allGather(y, all, count, DataType.FLOAT32))
 *     .subscribe();
 * }</pre>
 *
 * <p>A Mono completes when this rank's output is there and its input may be overwritten. Cancelling
 * it, or letting its time limit pass, while the operation is in flight aborts the communicator on
 * every rank, with the reason and the rank: peers may already be reading and writing memory. What
 * was not enqueued yet is simply not enqueued. By default what follows a Mono runs on the library's
 * completion thread, where blocking is refused, or on the subscriber's, if all is done by the time
 * it has subscribed; {@link CollectivesOptions#withScheduler} moves it.
 *
 * <p>Shapes, and what in place means, are in {@link CollectiveCall}. Counts of 0 are allowed. Any
 * buffer of the communicator's device will do; one that every rank {@linkplain #register
 * registered} is read and written in place by its peers, which is faster for large sizes.
 */
public final class Collectives implements CollectiveOperations<Mono<Void>>, AutoCloseable {
  private final Lane lane;
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
   * Connects to all ranks and readies the algorithms. Every rank calls it, in the same order among
   * its other set-ups.
   *
   * @param communicator of the ranks that take part
   * @param options how; the same on every rank
   * @return the collectives; the caller closes them, or they close with the communicator. Or why
   *     they can't be had, naming the rank. What is chained to it may block
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
      stream = communicator.device().createStream(name).failFast();
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
    return LaneOpening.open(communicator, stream, options)
        .thenApply(lane -> new Collectives(lane, lanes));
  }

  /**
   * Another order of operations, with a stream of its own: what runs there and what runs here don't
   * wait for each other. Every rank calls it, in the same order among its lanes.
   *
   * @param name for diagnostics
   * @return the lane; the caller closes it
   */
  public CompletableFuture<Collectives> lane(String name) {
    CollectivesOptions options = lane.options();
    return open(lane.communicator(), options.withTag(lanes.incrementAndGet()), name, lanes);
  }

  /** Whose ranks these are. */
  public Communicator communicator() {
    return lane.communicator();
  }

  /** The transports by which this rank reaches the others. */
  public TransportFlags transports() {
    return lane.transports();
  }

  /** Who is where. */
  public RankTopology topology() {
    return lane.topology();
  }

  /**
   * The stream on which everything is enqueued: for kernels that are to run before or after.
   * Completion, time limits and cancelling are looked after for what goes through this object only.
   */
  public DeviceStream stream() {
    return lane.stream();
  }

  /**
   * Makes a buffer known to all ranks, so that they read and write it in place. Every rank calls it
   * with a buffer of the same size, in the same order.
   *
   * @param buffer of the communicator's device; stays the caller's, and open until the registration
   *     is closed
   * @return the registration; fails with {@link InvalidUsage} if sizes differ, on every rank, and
   *     all may go on. What is chained to it may block
   */
  public CompletableFuture<Registration> register(DeviceBuffer buffer) {
    return lane.register(buffer);
  }

  /** {@link #chunked(CollectiveCall, long, int)} with one chunk ahead. */
  public Flux<Chunk> chunked(CollectiveCall call, long chunkElements) {
    return chunked(call, chunkElements, 1);
  }

  /**
   * A collective in chunks, as a cold Flux that emits each chunk when it is done, so that the
   * subscriber works on one while the next moves. In order; completes behind the last one.
   *
   * <p>Demand decides: a chunk is enqueued when it was requested, and {@code prefetch} more ahead
   * of that. So all ranks must request alike: a chunk that one rank has enqueued waits for the
   * ranks that have not, within the time limit. Nothing else that involves peers may run on this
   * lane meanwhile, or the ranks' orders would differ; take a {@link #lane} for the chunks.
   *
   * <p>Cancelling leaves undone what is not enqueued; what is in flight, chunks ahead as well,
   * aborts as the class says. {@code take(n)} cancels: give it no prefetch.
   *
   * <p>Where a buffer has a share for each rank, a chunk is a range of every share: after a chunk
   * of an all-gather the elements {@code offset} to {@code offset + count - 1} of all ranks' shares
   * are there.
   *
   * @param call anything but an all-to-all-v, a send-receive or a barrier
   * @param chunkElements elements of each chunk but the last, in each share; multiples of 16 bytes
   *     are fastest
   * @param prefetch chunks that are enqueued beyond those requested, 0 to 31
   * @return the chunks; fails as the class says
   * @throws InvalidUsage if the call can't be chunked so
   */
  public Flux<Chunk> chunked(CollectiveCall call, long chunkElements, int prefetch) {
    return ChunkFlux.of(lane, new ChunkedCall(call, chunkElements), prefetch);
  }

  /** Work that is enqueued and completed as one: {@link Pipeline}. */
  public Pipeline pipeline() {
    return new Pipeline(lane, List.of());
  }

  /**
   * Returns any operation as a cold Mono.
   *
   * @param call the operation; its buffers are checked on subscription
   * @return as the class says
   */
  public Mono<Void> run(CollectiveCall call) {
    return lane.run(List.of(new Step.Collect(call)), call);
  }

  @Override
  public Mono<Void> enqueue(CollectiveCall call) {
    return run(call);
  }

  /**
   * The name of the algorithm that a call would take now.
   *
   * @throws InvalidUsage if none supports it
   */
  public String algorithmFor(CollectiveCall call) {
    return lane.algorithms().nameFor(call);
  }

  /**
   * The names of all algorithms that can do a call, in the same order on every rank.
   *
   * @param call bound to this rank's buffers
   */
  public List<String> algorithmsFor(CollectiveCall call) {
    return lane.algorithms().namesFor(call);
  }

  /**
   * Uses an algorithm wherever it can, for calls enqueued or recorded from now on. To be called on
   * every rank between the same calls.
   *
   * @param collective for what
   * @param algorithm its name; empty: back to what tuning file and estimates say
   * @throws InvalidUsage if there is none of that name
   */
  public void prefer(Collective collective, Optional<String> algorithm) {
    lane.algorithms().prefer(collective, algorithm);
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
