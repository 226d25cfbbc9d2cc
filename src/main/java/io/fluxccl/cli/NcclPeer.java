package io.fluxccl.cli;

import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collective;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/**
 * NCCL on a rank's buffers and GPU, on a stream of its own. What NCCL has no function for is done
 * by a group of sends and receives, as nccl-tests do; a barrier by an all-reduce of one byte.
 *
 * <p>NCCL waits without end for ranks that don't come. Here whatever takes longer than the time
 * limit is ended by ncclCommAbort, and with it the job.
 */
final class NcclPeer implements PerfContender, AutoCloseable {
  private static final long SCRATCH_BYTES = 256;

  private final Communicator communicator;
  private final NcclCommunicator nccl;
  private final CudaDevice device;
  private final CudaStream stream;
  private final DeviceBuffer scratch;
  private final CallBuffers buffers;
  private final Duration limit;

  /**
   * Joins all ranks' NCCLs; as {@link NcclCommunicator#join}.
   *
   * @param communicator of the ranks
   * @param buffers this rank's
   * @param environment where to look for NCCL
   * @param limit how long joining, and each work, may take
   */
  NcclPeer(
      Communicator communicator,
      CallBuffers buffers,
      Map<String, String> environment,
      Duration limit) {
    this.communicator = communicator;
    this.nccl = NcclCommunicator.join(communicator, environment, limit);
    this.device = (CudaDevice) communicator.device();
    this.stream = device.createStream("nccl");
    this.scratch = device.allocate(SCRATCH_BYTES);
    this.buffers = buffers;
    this.limit = limit;
  }

  @Override
  public String name() {
    return "NCCL " + nccl.library().version();
  }

  @Override
  public boolean supports(PerfCase shape, Placement placement) {
    // A group of sends and receives would overwrite what it has yet to send.
    return placement == Placement.OUT_OF_PLACE || shape.collective() != Collective.ALL_TO_ALL;
  }

  @Override
  public PerfWork prepare(PerfCase shape, Placement placement, int length, boolean graph) {
    NcclCall call =
        NcclCall.of(
            buffers.call(shape, placement), buffers.rank(), buffers.nRanks(), scratch.address());
    String what = "NCCL's " + shape;
    if (!graph) {
      return times ->
          watched(
              what,
              () -> {
                enqueue(call, stream, times * length, what);
                return stream.completion();
              });
    }
    // Outside of a recording once: NCCL connects ranks when it first needs to.
    await(
        watched(
            what,
            () -> {
              enqueue(call, stream, 1, what);
              return stream.completion();
            }));
    DeviceGraph[] recorded = new DeviceGraph[1];
    await(
        watched(
            what,
            () -> {
              recorded[0] =
                  device.record("nccl", onto -> enqueue(call, (CudaStream) onto, length, what));
              return CompletableFuture.completedFuture(null);
            }));
    return new PerfWork() {
      @Override
      public CompletableFuture<Void> run(int times) {
        return watched(
            what,
            () -> {
              for (int i = 0; i < times; i++) {
                stream.launch(recorded[0]);
              }
              return stream.completion();
            });
      }

      @Override
      public void close() {
        recorded[0].close();
      }
    };
  }

  private void enqueue(NcclCall call, CudaStream onto, int length, String what) {
    for (int i = 0; i < length; i++) {
      nccl.enqueue(call, onto, what);
    }
  }

  private static void await(CompletableFuture<Void> done) {
    try {
      done.join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /** Does something with NCCL that may block or not complete: until the time limit. */
  private CompletableFuture<Void> watched(String what, Supplier<CompletableFuture<Void>> work) {
    CompletableFuture<Void> done = communicator.inFlight(new CompletableFuture<>());
    done.orTimeout(limit.toNanos(), TimeUnit.NANOSECONDS);
    CompletableFuture<Void> outcome =
        done.handle(
            (nothing, failure) -> {
              if (failure != null) {
                throw ended(what, failure);
              }
              return null;
            });
    if (done.isDone()) {
      // The job has failed, and NCCL was aborted: its communicator is gone.
      return outcome;
    }
    try {
      nccl.requireHealthy(what);
      work.get()
          .whenComplete(
              (nothing, failure) -> {
                if (failure == null) {
                  done.complete(null);
                } else {
                  done.completeExceptionally(failure);
                }
              });
    } catch (RuntimeException e) {
      done.completeExceptionally(e);
    }
    return outcome;
  }

  private FluxCclException ended(String what, Throwable failure) {
    FluxCclException reason =
        failure instanceof TimeoutException
            ? new Timeout(
                FluxCclException.NO_RANK,
                what
                    + " on rank "
                    + buffers.rank()
                    + ": not done within "
                    + limit.toMillis()
                    + " ms; NCCL was aborted")
            : FluxCclException.from(failure);
    nccl.abort();
    communicator.abort(reason);
    return reason;
  }

  @Override
  public void close() {
    if (communicator.failure() != null) {
      nccl.abort();
    }
    nccl.close();
    scratch.close();
    stream.close();
  }
}
