package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import java.time.Duration;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * All-reduce of one buffer, in place: afterwards every rank holds the same combination of
 * everybody's elements, bit for bit. Prepared once (connections, registration, exchange), run as
 * often as wanted, in one order on all ranks.
 *
 * <p>When a rank dies, does not answer in time, or cancels, the communicator is aborted with that
 * reason and every rank's pending runs end with it.
 */
public final class AllReduce implements AutoCloseable {
  private static final AtomicBoolean REMARKED = new AtomicBoolean();

  private final Communicator communicator;
  private final DeviceStream stream;
  private final DeviceBuffer buffer;
  private final Duration timeout;
  private final AllReduceAlgorithm algorithm;
  private final AtomicBoolean closed = new AtomicBoolean();

  // No run may come behind the work that closing waits for.
  private final Object launching = new Object();

  // Ends exceptionally with the communicator, and then closes this.
  private final CompletableFuture<Void> lifetime = new CompletableFuture<>();

  private AllReduce(
      Communicator communicator,
      DeviceStream stream,
      DeviceBuffer buffer,
      Duration timeout,
      AllReduceAlgorithm algorithm) {
    this.communicator = communicator;
    this.stream = stream;
    this.buffer = buffer;
    this.timeout = timeout;
    this.algorithm = algorithm;
  }

  /**
   * Prepares with the default options.
   *
   * @see #prepare(Communicator, DeviceStream, DeviceBuffer, AllReduceOptions)
   */
  public static CompletableFuture<AllReduce> prepare(
      Communicator communicator, DeviceStream stream, DeviceBuffer buffer) {
    return prepare(communicator, stream, buffer, AllReduceOptions.DEFAULT);
  }

  /**
   * Connects to all ranks and exchanges the buffers. Every rank must call it, in the same order
   * among its other set-ups.
   *
   * @param communicator of the ranks that take part
   * @param stream on which runs are enqueued; stays the caller's
   * @param buffer of the communicator's device, of the same size on every rank; stays the caller's
   * @param options transport, tag, time limit
   * @return the prepared operation; or why it can't be, naming the rank. It is closed when the
   *     communicator fails or is closed, if nobody did before. What is chained to it may block
   */
  public static CompletableFuture<AllReduce> prepare(
      Communicator communicator,
      DeviceStream stream,
      DeviceBuffer buffer,
      AllReduceOptions options) {
    Device device = communicator.device();
    if (buffer.device() != device || stream.device() != device) {
      return CompletableFuture.failedFuture(
          new InvalidUsage(
              "allReduce on rank "
                  + communicator.bootstrap().rank()
                  + ": buffer and stream must be of the communicator's device, "
                  + device.description()));
    }
    Deadline deadline = Deadline.after(options.timeout());
    return communicator
        .inTurn(
            options.tag(),
            () ->
                PeerMesh.connect(communicator, options.transport(), options.tag(), deadline)
                    .thenComposeAsync(
                        mesh -> algorithm(mesh, buffer, options),
                        Schedulers.boundedElastic()::schedule))
        .thenApply(
            algorithm ->
                new AllReduce(communicator, stream, buffer, options.timeout(), algorithm)
                    .endWithCommunicator())
        // Whoever blocks in what follows must not block the thread on which set-ups go on.
        .whenCompleteAsync((done, failure) -> {}, Schedulers.boundedElastic()::schedule);
  }

  private static CompletableFuture<AllReduceAlgorithm> algorithm(
      PeerMesh mesh, DeviceBuffer buffer, AllReduceOptions options) {
    try {
      boolean mapped = mesh.allMapped();
      if (mesh.communicator().device().kind() == DeviceKind.CUDA) {
        remarkOnce(mesh);
        return mapped && mesh.nRanks() <= MappedState.MAX_RANKS
            ? GpuDirectAllReduce.prepare(mesh, buffer)
            : GpuChannelAllReduce.prepare(mesh, buffer);
      }
      return mapped
          ? DirectAllReduce.prepare(mesh, buffer, threadsFor(mesh.communicator(), options))
          : ChannelAllReduce.prepare(mesh, buffer);
    } catch (RuntimeException e) {
      mesh.close();
      throw e;
    }
  }

  private static void remarkOnce(PeerMesh mesh) {
    if (mesh.rank() == 0) {
      GpuGrid.remark(mesh.cards(), mesh.communicator().bootstrap())
          .filter(remark -> REMARKED.compareAndSet(false, true))
          .ifPresent(LoggerFactory.getLogger(AllReduce.class)::warn);
    }
  }

  /** What nobody closed must not outlive the communicator: threads, sockets and memory hang on. */
  private AllReduce endWithCommunicator() {
    communicator
        .inFlight(lifetime)
        .whenComplete(
            (ended, reason) -> {
              if (reason != null) {
                close();
              }
            });
    return this;
  }

  private static int threadsFor(Communicator communicator, AllReduceOptions options) {
    int cores = Runtime.getRuntime().availableProcessors();
    return options.threads() > 0
        ? options.threads()
        : Math.max(1, cores / communicator.bootstrap().nRanksPerNode());
  }

  /**
   * How it is done: {@code direct} on mapped memory, or {@code all-pairs} over channels. The same
   * on the host and on GPUs.
   */
  public String algorithm() {
    return algorithm.name();
  }

  /**
   * Enqueues one run on the stream and returns at once. {@link #completion()} tells when it is
   * done. (On a GPU that several ranks of this process share, a thread that enqueues hundreds waits
   * for the first of them.)
   *
   * @param count elements, from the start of the buffer; the same on every rank; 0 does nothing
   * @param type of the elements; the same on every rank
   * @param op how to combine; the same on every rank
   * @return this
   * @throws InvalidUsage if the buffer is too small
   * @throws FluxCclException the communicator's failure, if it has failed
   */
  public AllReduce enqueue(long count, DataType type, ReduceOp op) {
    if (count < 0 || count > buffer.size() / type.size()) {
      throw new InvalidUsage(
          "allReduce on rank "
              + communicator.bootstrap().rank()
              + " count="
              + count
              + " of "
              + type
              + "; the buffer holds "
              + buffer.size() / type.size());
    }
    synchronized (launching) {
      refuseIfOver();
      if (count > 0) {
        launch(count, type, op);
        // Failed meanwhile: the kernel may have found that out and done nothing.
        refuseIfOver();
      }
    }
    return this;
  }

  private void launch(long count, DataType type, ReduceOp op) {
    try {
      algorithm.enqueue(stream, count, type, op);
    } catch (DeviceFailure e) {
      // The peers may have launched theirs, and would wait for this one.
      communicator.abort(e);
      throw e;
    }
  }

  private void refuseIfOver() {
    FluxCclException failure = communicator.failure();
    if (failure != null) {
      throw failure;
    }
    if (closed.get()) {
      throw new InvalidUsage("allReduce on rank " + communicator.bootstrap().rank() + ": closed");
    }
  }

  /** {@link #completion(Duration)} with the time limit of the options. */
  public CompletableFuture<Void> completion() {
    return completion(timeout);
  }

  /**
   * A future of everything enqueued so far.
   *
   * @param limit how long all of it may take
   * @return completes when it is done; with the communicator's failure, or {@link Timeout} naming
   *     the rank that was waited for, which then aborts the communicator
   */
  public CompletableFuture<Void> completion(Duration limit) {
    CompletableFuture<Void> done = communicator.inFlight(new CompletableFuture<>());
    stream
        .completion()
        .orTimeout(Deadline.after(limit).remainingNanos(), TimeUnit.NANOSECONDS)
        .whenComplete(
            (ignored, failure) -> {
              // A communicator that was closed here must not take the other ranks with it.
              if (failure != null && communicator.failure() == null) {
                communicator.abort(
                    failure instanceof java.util.concurrent.TimeoutException
                        ? timedOut(limit)
                        : FluxCclException.from(failure));
              }
              FluxCclException reason = communicator.failure();
              if (reason == null) {
                done.complete(null);
              } else {
                done.completeExceptionally(reason);
              }
            });
    return done;
  }

  private Timeout timedOut(Duration limit) {
    OptionalInt silent = communicator.bootstrap().unresponsiveRank();
    int waitedFor = communicator.abortFlag().waitingFor();
    String who;
    if (silent.isPresent()) {
      who = "rank " + silent.getAsInt() + " answers no heartbeat";
    } else if (waitedFor >= 0) {
      who =
          "the last long wait was for rank "
              + waitedFor
              + ", which is alive: does it enqueue the same operations? Or is the limit too short?";
    } else {
      who = "no rank was waited for long: is the limit too short?";
    }
    return new Timeout(
        silent.orElse(waitedFor),
        "allReduce on rank "
            + communicator.bootstrap().rank()
            + ": not done within "
            + Deadline.after(limit).timeout().toMillis()
            + " ms; "
            + who);
  }

  /**
   * One run as a cold Mono: subscribing enqueues it.
   *
   * @param count elements
   * @param type of the elements
   * @param op how to combine
   * @return completes when this rank's buffer holds the result; cancelling it in flight aborts the
   *     communicator
   */
  public Mono<Void> run(long count, DataType type, ReduceOp op) {
    return Mono.defer(
        () -> {
          enqueue(count, type, op);
          CompletableFuture<Void> done = completion();
          return Mono.fromFuture(done, true).doOnCancel(() -> cancelled(done));
        });
  }

  private void cancelled(CompletableFuture<Void> done) {
    if (!done.isDone()) {
      int rank = communicator.bootstrap().rank();
      communicator.abort(
          new Aborted(rank, "allReduce was cancelled by rank " + rank + " while in flight"));
    }
  }

  /**
   * Closes connections and frees what preparing took, once runs already enqueued have ended.
   * Connections to other hosts stay, for a few seconds at most, until the peers close too: they may
   * still wait to be told that their bytes arrived. Waits for nothing. Idempotent.
   */
  @Override
  public void close() {
    synchronized (launching) {
      if (!closed.compareAndSet(false, true)) {
        return;
      }
      // Kernels in flight use the peers' memory; after an abort they end within a bounded number of
      // polls.
      communicator.device().whenEnqueuedWorkIsDone(algorithm::close);
    }
    lifetime.complete(null);
  }
}
