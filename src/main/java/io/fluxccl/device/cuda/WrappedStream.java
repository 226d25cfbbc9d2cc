// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.completion.CompletionAgent;
import io.fluxccl.device.DeviceGraph;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import jcuda.driver.CUcontext;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureStatus;
import jcuda.driver.JCudaDriver;

/**
 * A stream of another owner, or a branch of one. The owner may capture its stream at any time,
 * which also captures the streams that it forks to.
 *
 * <p>A query of a captured stream would invalidate the capture, and marks must not become a part of
 * it. The thread that enqueues therefore marks its work at once by an event, and other threads
 * query only these events.
 */
@SuppressWarnings("try") // variables that only keep a lock held
final class WrappedStream extends LiveCudaStream {
  /** Handles up to this value mean one of the default streams. */
  private static final long LAST_DEFAULT = 2;

  /** The wrapped stream: this one, or the one that this stream is a branch of. */
  private final WrappedStream root;

  /** An event that is never recorded; its query returns the GPU's health. */
  private final CUevent probe;

  // All guarded by lock.
  private final int[] captureStatus = new int[1];

  /** Actions to run after work that has no mark yet, because all events were in use. */
  private final List<Runnable> unmarked = new ArrayList<>();

  private WrappedStream(
      CudaDevice device,
      String name,
      CUstream stream,
      CudaPinnedBuffer line,
      CompletionAgent agent,
      WrappedStream root) {
    super(device, name, stream, false, line, agent);
    this.root = root == null ? this : root;
    try {
      context.makeCurrent();
      this.probe = context.createEvent(CUevent_flags.CU_EVENT_DISABLE_TIMING);
    } catch (RuntimeException | Error e) {
      queue.remove();
      throw e;
    }
  }

  /** Returns the stream that {@link CudaDevice#wrapStream} describes. */
  static LiveCudaStream of(CudaDevice device, long handle, CompletionAgent agent) {
    CUstream stream = check(device.context(), handle);
    String name = Text.of("gpu%d-wrapped-%x", device.index(), handle);
    return open(device, line -> new WrappedStream(device, name, stream, line, agent, null));
  }

  /** Returns a new stream, which is captured with the root if that forks to it. */
  static LiveCudaStream branch(WrappedStream of, String name, CompletionAgent agent) {
    CudaDevice device = of.device;
    return create(
        device,
        false,
        (line, handle) -> new WrappedStream(device, name, handle, line, agent, of.root));
  }

  /** Returns the driver's stream of a handle, or refuses a handle that cannot be wrapped. */
  private static CUstream check(PrimaryContext context, long handle) {
    if (handle >= 0 && handle <= LAST_DEFAULT) {
      throw InvalidUsage.of(
          "wrapStream of %s on GPU %d; it waits for the work of other streams, or is another one"
              + " for each thread: give one that was created (cuStreamCreate, cudaStreamCreate)",
          handle == LAST_DEFAULT ? "the per-thread default stream" : "the legacy default stream",
          context.ordinal);
    }
    CUstream stream = new CUstream();
    CudaPointer.set(stream, handle);
    CUcontext of = new CUcontext();
    context.makeCurrent();
    int result = CudaError.result(() -> JCudaDriver.cuStreamGetCtx(stream, of));
    if (result != CUresult.CUDA_SUCCESS) {
      throw InvalidUsage.of(
          "wrapStream of 0x%x on GPU %d: the driver answers %s; give a stream that is not"
              + " destroyed",
          handle, context.ordinal, CUresult.stringFor(result));
    }
    if (!of.equals(context.handle)) {
      throw InvalidUsage.of(
          "wrapStream of 0x%x on GPU %d: it belongs to another GPU or a context other than this"
              + " GPU's primary one; use cuDevicePrimaryCtxRetain, or the runtime API, in place of"
              + " cuCtxCreate",
          handle, context.ordinal);
    }
    return stream;
  }

  /** Returns false: the owner may enqueue work between two launches. */
  @Override
  boolean knowsAllWork() {
    return false;
  }

  @Override
  public boolean isCapturing() {
    synchronized (lock) {
      if (isClosed()) {
        return false;
      }
      context.makeCurrent();
      check(JCudaDriver.cuStreamIsCapturing(stream, captureStatus), "cuStreamIsCapturing");
      return captureStatus[0] != CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE;
    }
  }

  /**
   * Queries the capture after the work was enqueued, because a wait may have added the stream to a
   * capture.
   */
  @Override
  void ended() {
    synchronized (lock) {
      if (isCapturing()) {
        return;
      }
      dirty = !milestones.hasRoom();
      if (dirty) {
        return;
      }
      long sequence = queue.next();
      int result;
      try (EnqueueLock held = tryLock()) {
        result = milestones.record(stream, sequence);
      }
      dirty = result != CUresult.CUDA_SUCCESS;
      runUnmarked();
    }
  }

  /**
   * Does not query the driver: the calling thread may be capturing, and a query would invalidate
   * the capture.
   */
  @Override
  boolean mayBeBusy() {
    return true;
  }

  /** Combines the marks and the GPU's health, because the stream itself must not be queried. */
  @Override
  int query() {
    int health = CudaError.query(probe);
    boolean done = !dirty && milestones.hasReachedLast(queue.issued());
    return health != CUresult.CUDA_SUCCESS || done ? health : CUresult.CUDA_ERROR_NOT_READY;
  }

  @Override
  void requireSameCapture(CudaStream other) {
    boolean related = other instanceof WrappedStream before && root == before.root;
    if (!related && (isCapturing() || other.isCapturing())) {
      throw InvalidUsage.of(
          "%s can't wait for %s while the owner of one of them captures it; wait before the capture"
              + " begins, or after it has ended",
          this, other);
    }
  }

  @Override
  protected CudaStream enqueueGraph(DeviceGraph graph) {
    if (isCapturing()) {
      throw new InvalidUsage(this + " launches no graph while its owner captures it");
    }
    return super.enqueueGraph(graph);
  }

  @Override
  protected CudaStream newBranch(String branchName) {
    return device.newBranch(branchName, this);
  }

  @Override
  public CompletableFuture<Void> completion() {
    synchronized (lock) {
      return isCapturing() ? CompletableFuture.completedFuture(null) : super.completion();
    }
  }

  @Override
  long mark() {
    long sequence = super.mark();
    runUnmarked();
    return sequence;
  }

  private void runUnmarked() {
    if (!dirty) {
      unmarked.forEach(action -> runAfter(queue.issued(), action));
      unmarked.clear();
    }
  }

  @Override
  boolean runAfterEnqueuedWork(Runnable action) {
    synchronized (lock) {
      if (dirty && !isClosed()) { // only the enqueuing thread may mark
        unmarked.add(action);
        return true;
      }
      return super.runAfterEnqueuedWork(action);
    }
  }

  @Override
  void markLast() {
    dirty = false;
    runUnmarked();
  }

  @Override
  void destroyHandle() {
    JCudaDriver.cuEventDestroy(probe);
    if (root != this) {
      super.destroyHandle();
    }
  }
}
