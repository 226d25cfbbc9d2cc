// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.FusedAllReduce;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.agrona.CloseHelper;

/**
 * NCCL on the GPU of a rank, on a stream of its own. A collective that NCCL has no function for is
 * a group of sends and receives, as in nccl-tests; a barrier is an all-reduce of one byte.
 *
 * <p>NCCL has two paths, and each is the faster one for some calls: the plain one, on the rank's
 * buffers, and that of symmetric windows, for which NCCL itself allocates buffers.
 *
 * <p>NCCL waits without a limit for a missing rank. Calls that take longer than the time limit are
 * ended by ncclCommAbort, which fails the job.
 */
final class NcclPeer implements MeasuredLibrary.Peer {
  private static final long SCRATCH_BYTES = 256;

  /** Collectives for which NCCL has kernels on windows. */
  private static final Set<Collective> IN_WINDOWS =
      EnumSet.of(
          Collective.ALL_REDUCE,
          Collective.ALL_GATHER,
          Collective.REDUCE_SCATTER,
          Collective.FUSED_ALL_REDUCE);

  /** By their ncclRedOp_t. */
  private static final List<ReduceOp> OPS =
      List.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG);

  private final Communicator communicator;
  private final NcclCommunicator nccl;
  private final CudaDevice device;
  private final CudaStream stream;
  private final DeviceBuffer scratch;
  private final Duration limit;
  private final List<NcclCommunicator.Window> windows = new ArrayList<>();
  private final List<MeasuredLibrary> ways;

  /** Owns the stream and all buffers. */
  private final Lifecycle lifecycle = new Lifecycle("NCCL");

  /**
   * Joins all ranks' NCCLs; as {@link NcclCommunicator#join}.
   *
   * @param communicator of the ranks
   * @param buffers of this rank
   * @param environment of the process
   * @param limit how long joining, and each run, may take
   */
  NcclPeer(
      Communicator communicator,
      CallBuffers buffers,
      Map<String, String> environment,
      Duration limit) {
    this.communicator = communicator;
    this.nccl = NcclCommunicator.join(communicator, environment, limit);
    this.device = (CudaDevice) communicator.device();
    this.limit = limit;
    try {
      this.stream = lifecycle.own(device.createStream("nccl"));
      this.scratch = lifecycle.own(device.allocate(SCRATCH_BYTES));
      windows.addAll(nccl.windows(2, buffers.input().size(), communicator, limit));
      String name = "NCCL " + nccl.library().version();
      Way plain = new Way(name, buffers, false);
      this.ways =
          windows.isEmpty()
              ? List.of(plain)
              : List.of(plain, new Way(name + " windows", buffers.at(wrap(0), wrap(1)), true));
    } catch (RuntimeException | Error e) {
      CloseHelper.close(e::addSuppressed, () -> giveUp(e));
      throw e;
    }
  }

  /** Ends the job, because the other ranks wait for this one in NCCL or for its windows. */
  private void giveUp(Throwable reason) {
    Closing.all(nccl::abort, () -> communicator.abort(FluxCclException.from(reason)), this);
  }

  private DeviceBuffer wrap(int window) {
    return lifecycle.own(device.wrap(windows.get(window).address(), windows.get(window).bytes()));
  }

  @Override
  public List<MeasuredLibrary> ways() {
    return ways;
  }

  /** One of NCCL's paths. */
  private final class Way implements MeasuredLibrary {
    private final String name;
    private final CallBuffers buffers;
    private final boolean inWindows;

    Way(String name, CallBuffers buffers, boolean inWindows) {
      this.name = name;
      this.buffers = buffers;
      this.inWindows = inWindows;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public boolean supports(PerfCase shape, BufferAliasing placement) {
      // In place, a group of sends and receives would overwrite bytes that are yet to be sent.
      return !shape.collective().isOfExperts()
          && (placement == BufferAliasing.OUT_OF_PLACE
              || shape.collective() != Collective.ALL_TO_ALL)
          && (!inWindows || IN_WINDOWS.contains(shape.collective()));
    }

    @Override
    public PreparedCalls prepare(
        PerfCase shape, BufferAliasing placement, int length, boolean graph) {
      return NcclPeer.this.prepare(shape, buffers.call(shape, placement), length, graph);
    }
  }

  private PreparedCalls prepare(PerfCase shape, CollectiveCall call, int length, boolean graph) {
    NcclCommunicator.Call collective = collective(shape, call);
    Consumer<CudaStream> epilogue = epilogue(call);
    String what = "NCCL's " + shape;
    if (!graph) {
      return new PreparedCalls(
          times -> run(what, () -> enqueue(collective, epilogue, stream, times * length, what)));
    }
    // Once without recording, because NCCL connects its ranks at the first call.
    await(run(what, () -> enqueue(collective, epilogue, stream, 1, what)));
    AtomicReference<DeviceGraph> recorded = new AtomicReference<>();
    Consumer<DeviceStream> record =
        onto -> enqueue(collective, epilogue, (CudaStream) onto, length, what);
    await(run(what, () -> recorded.set(device.record("nccl", record))));
    DeviceGraph replayed = recorded.get();
    return new PreparedCalls(times -> run(what, () -> launch(replayed, times)), replayed::close);
  }

  private void launch(DeviceGraph recorded, int times) {
    for (int i = 0; i < times; i++) {
      stream.launch(recorded);
    }
  }

  private NcclCommunicator.Call collective(PerfCase shape, CollectiveCall call) {
    long in = call.input() == null ? 0 : call.input().address();
    long out = call.output() == null ? 0 : call.output().address();
    long count = shape.count();
    int type = shape.type().ordinal();
    int op = shape.op() == null ? -1 : OPS.indexOf(shape.op());
    int root = shape.root();
    return switch (shape.collective()) {
      case ALL_REDUCE ->
          (lib, comm, stream) -> NcclCalls.allReduce(lib, in, out, count, type, op, comm, stream);
      case ALL_GATHER ->
          (lib, comm, stream) -> NcclCalls.allGather(lib, in, out, count, type, comm, stream);
      case REDUCE_SCATTER ->
          (lib, comm, stream) ->
              NcclCalls.reduceScatter(lib, in, out, count, type, op, comm, stream);
      case BROADCAST ->
          (lib, comm, stream) -> NcclCalls.broadcast(lib, in, out, count, type, root, comm, stream);
      case REDUCE ->
          (lib, comm, stream) ->
              NcclCalls.reduce(lib, in, out, count, type, op, root, comm, stream);
      case FUSED_ALL_REDUCE -> {
        int sum = OPS.indexOf(ReduceOp.SUM);
        yield (lib, comm, on) -> NcclCalls.allReduce(lib, in, in, count, type, sum, comm, on);
      }
      case BARRIER -> {
        long at = scratch.address();
        int bytes = DataType.UINT8.ordinal();
        int sum = OPS.indexOf(ReduceOp.SUM);
        yield (lib, comm, stream) -> NcclCalls.allReduce(lib, at, at, 1, bytes, sum, comm, stream);
      }
      case DISPATCH, COMBINE -> throw new InvalidUsage(shape + ": NCCL has no such operation");
      case ALL_TO_ALL, ALL_TO_ALL_V, GATHER, SCATTER, SEND_RECEIVE -> {
        long[] parts = parts(call);
        yield (lib, comm, stream) -> NcclCalls.exchange(lib, in, out, parts, type, comm, stream);
      }
    };
  }

  /** Returns what {@link NcclCalls#exchange} takes. */
  private long[] parts(CollectiveCall call) {
    int rank = communicator.bootstrap().rank();
    int size = call.type().size();
    return IntStream.range(0, communicator.bootstrap().nRanks())
        .mapToObj(
            peer ->
                LongStream.of(
                    call.sendOffset(peer),
                    call.sendBytes(rank, peer) / size,
                    call.receiveOffset(peer),
                    call.receiveBytes(rank, peer) / size))
        .flatMapToLong(part -> part)
        .toArray();
  }

  /** Returns what follows NCCL's collective: the library's kernel for the rows of the sum. */
  private Consumer<CudaStream> epilogue(CollectiveCall call) {
    if (call instanceof FusedAllReduce fused) {
      AddRmsNorm norm = (AddRmsNorm) fused.epilogue();
      return onto ->
          norm.kernels().launchAlone(onto, fused, norm.argument(), device.multiprocessors());
    }
    return onto -> {};
  }

  private void enqueue(
      NcclCommunicator.Call call,
      Consumer<CudaStream> epilogue,
      CudaStream onto,
      int times,
      String what) {
    for (int i = 0; i < times; i++) {
      nccl.enqueue(call, onto, what);
      epilogue.accept(onto);
    }
  }

  private static void await(CompletableFuture<Void> done) {
    try {
      done.join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /**
   * Enqueues work, which may block, and completes when the stream has done it. After the time limit
   * or a failure, aborts NCCL and the job.
   */
  private CompletableFuture<Void> run(String what, Runnable enqueue) {
    CompletableFuture<Void> done = communicator.inFlight(new CompletableFuture<>());
    done.orTimeout(limit.toNanos(), TimeUnit.NANOSECONDS);
    CompletableFuture<Void> outcome =
        done.exceptionally(
            failure -> {
              throw abort(what, failure);
            });
    if (done.isDone()) {
      // The job has failed and NCCL was aborted: its communicator can't be used.
      return outcome;
    }
    try {
      nccl.requireHealthy(what);
      enqueue.run();
      stream
          .completion()
          .thenAccept(done::complete)
          .exceptionally(
              failure -> {
                done.completeExceptionally(failure);
                return null;
              });
    } catch (RuntimeException e) {
      done.completeExceptionally(e);
    }
    return outcome;
  }

  private FluxCclException abort(String what, Throwable failure) {
    FluxCclException reason =
        failure instanceof TimeoutException
            ? Timeout.of(
                FluxCclException.NO_RANK,
                "%s on rank %d: not done within %d ms; NCCL was aborted",
                what,
                communicator.bootstrap().rank(),
                limit.toMillis())
            : FluxCclException.from(failure);
    nccl.abort();
    communicator.abort(reason);
    return reason;
  }

  @Override
  public void close() {
    // Aborted kernels may still use the windows: their memory stays until the process ends.
    AutoCloseable ended =
        communicator.failure() != null ? nccl::abort : () -> nccl.release(windows);
    Closing.all(ended, nccl, lifecycle);
  }
}
