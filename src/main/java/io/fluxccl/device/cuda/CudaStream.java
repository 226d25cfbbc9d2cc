// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.AbstractStream;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.Recording;
import java.util.function.LongToIntFunction;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUfunction;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A stream of a GPU, which runs its work or records it for a graph. Any threads may enqueue
 * concurrently, except by {@link #copyAsync} and {@link #writeValue64}. On a recording stream, only
 * the recording thread may enqueue.
 *
 * <p>A kernel that fails makes the GPU's context unusable: the futures of all streams of the GPU in
 * this process end with {@link DeviceFailure}, and so does every later call. Enqueued work cannot
 * be cancelled: {@link #close()} fails the futures, and the work runs to its end. A stream can
 * {@link #waitFor wait for} one of another GPU, too.
 */
@SuppressWarnings("try") // variables that only keep a lock held
public abstract class CudaStream extends AbstractStream<CudaDevice, CudaStream> {
  static final int WRITE_DEFAULT = 0; // after a memory barrier for all earlier work

  private static final int STATIC_SHARED_LIMIT = 48 * 1024;

  final PrimaryContext context;
  final CUstream stream;
  final Object lock = new Object();

  /** Recorded on this stream; other streams wait for it. */
  final Event event = new Event();

  // For the thread that calls copyAsync and writeValue64.
  private final CudaPointer asyncTarget = new CudaPointer();
  private final CudaPointer asyncSource = new CudaPointer();

  // All guarded by lock.
  private final KernelParameters parameters;

  /** Whether the last work enqueued is a launch that the next one may overlap. */
  boolean lastMayOverlap;

  private final CudaPointer target = new CudaPointer();
  private final CudaPointer source = new CudaPointer();

  CudaStream(CudaDevice device, String name, CUstream stream, Recording recording) {
    super(device, name, recording);
    this.context = device.context();
    this.stream = stream;
    this.parameters = new KernelParameters(device);
  }

  /** Called before each enqueue: refuses a closed stream and makes the context current. */
  void begin() {
    lastMayOverlap = false;
    checkOpen();
    context.makeCurrent();
  }

  /** Called after each enqueue. */
  void ended() {}

  /** Returns whether only this object enqueues on the stream. */
  boolean knowsAllWork() {
    return true;
  }

  /**
   * Refuses a wait between two streams that would add one of them to another stream's capture, or
   * invalidate that capture.
   *
   * @throws InvalidUsage if the wait would do so
   */
  void requireSameCapture(CudaStream other) {}

  /**
   * Acquires the enqueue lock for one driver call: see {@link EnqueueLock}.
   *
   * @return the lock, which the caller closes after the call, also if that fails; null if there is
   *     none
   */
  EnqueueLock tryLock() {
    return null;
  }

  @Override
  protected final boolean canUse(DeviceBuffer buffer) {
    return buffer instanceof CudaBuffer && buffer.device().index() == device.index();
  }

  @Override
  protected final boolean canUse(PinnedBuffer buffer) {
    return buffer instanceof CudaPinnedBuffer;
  }

  /**
   * Returns the driver's handle, for work that FluxCCL has no method for. Calls need the device's
   * context ({@link CudaDevice#makeCurrent()}); {@link #completion()} covers their work, and a
   * recording stream records it. Do not destroy the handle. Launch kernels that wait for other
   * streams of this GPU by {@link #launch}. If two threads enqueue at the same moment, the driver
   * may put both streams' work into one hardware queue; only this library's own calls exclude each
   * other.
   */
  public CUstream handle() {
    return stream;
  }

  /**
   * {@inheritDoc}
   *
   * <p>Arguments: {@code Integer}, {@code Long}, {@code Float} and {@code Double} as they are;
   * buffers and abort flags as 64-bit addresses; {@link io.fluxccl.device.DeviceHandle}s, {@code
   * byte[]} and the remaining bytes of a {@code ByteBuffer} as structures by value. Types and sizes
   * must be those of the kernel's parameters: number and sizes are checked where the driver knows
   * them (CUDA 12.4 on, with the native library).
   */
  @Override
  public CudaStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    int sharedBytes = kernel instanceof CudaKernel known ? known.sharedBytes() : 0;
    return launch(kernel, gridDim, blockDim, sharedBytes, args);
  }

  /**
   * Enqueues a kernel with dynamic shared memory.
   *
   * @param kernel made for CUDA
   * @param gridDim blocks, 1 or more
   * @param blockDim threads a block, 1 to 1024
   * @param sharedBytes of shared memory a block, 0 to what the GPU has
   * @param args its arguments
   * @return this stream
   * @throws InvalidUsage if the kernel is for another kind of device, a dimension is out of range,
   *     or an argument can't be passed
   * @throws DeviceFailure if the driver refuses
   */
  public CudaStream launch(
      Kernel kernel, int gridDim, int blockDim, int sharedBytes, KernelArgs args) {
    if (!(kernel instanceof CudaKernel launched)) {
      throw InvalidUsage.of(
          "kernel %s is for %s, this is GPU %s; take one from a CudaModule",
          kernel.name(), kernel.kind(), device.index());
    }
    device.properties.checkLaunch(kernel, gridDim, blockDim, sharedBytes);
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      synchronized (lock) {
        boolean overlaps = launched.overlapsOn(device);
        boolean both = overlaps && lastMayOverlap && knowsAllWork();
        begin();
        keep(kernel.name(), args);
        CudaModule.Function function = launched.loadedOn(device);
        if (sharedBytes > STATIC_SHARED_LIMIT) {
          function.allowShared(sharedBytes);
        }
        CUfunction handle = function.handle;
        CudaPointer packed = parameters.pack(kernel, function.signature, args);
        int result;
        try (EnqueueLock held = tryLock()) {
          result =
              both
                  ? FunctionCalls.launchOverlapping(
                      CudaPointer.valueOf(handle),
                      gridDim,
                      blockDim,
                      sharedBytes,
                      CudaPointer.valueOf(stream),
                      CudaPointer.valueOf(packed))
                  : JCudaDriver.cuLaunchKernel(
                      handle, gridDim, 1, 1, blockDim, 1, 1, sharedBytes, stream, packed, null);
        }
        ended();
        lastMayOverlap = overlaps && result == CUresult.CUDA_SUCCESS;
        if (result != CUresult.CUDA_SUCCESS) {
          throw failed(
              result,
              Text.of(
                  "cuLaunchKernel(%s <<<%s, %s, %s>>>)",
                  kernel.name(), gridDim, blockDim, sharedBytes));
        }
      }
    }
    return this;
  }

  /**
   * Calls a function of another library that enqueues kernels on this stream, while holding the
   * enqueue lock.
   *
   * @param args the buffers that the kernels use
   * @param call takes this stream's handle and returns the function's result
   * @return the result of the call
   */
  public int enqueueKernels(KernelArgs args, LongToIntFunction call) {
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      synchronized (lock) {
        begin();
        keep("of another library", args);
        int result;
        try (EnqueueLock held = tryLock()) {
          result = call.applyAsInt(CudaPointer.valueOf(stream));
        }
        ended();
        return result;
      }
    }
  }

  @Override
  protected final CudaStream enqueueCopy(long to, long from, long size) {
    synchronized (lock) {
      begin();
      if (size > 0) {
        enqueueCopy(target.set(to), source.set(from), size);
      }
    }
    return this;
  }

  @Override
  protected final CudaStream enqueueWrite(long to, long value) {
    synchronized (lock) {
      begin();
      enqueueWrite(target.set(to), value);
    }
    return this;
  }

  /**
   * Enqueues a copy between any memory that this device reaches: its own, mapped, pinned. Checks
   * nothing but that the stream is open and allocates nothing; on a preferred stream it takes no
   * lock of this library. Not to be called by two threads at once, nor {@link #writeValue64}
   * meanwhile.
   *
   * @param to address of the first byte to write
   * @param from address of the first byte to read
   * @param size bytes, 1 or more
   * @throws DeviceFailure if the driver refuses
   */
  public void copyAsync(long to, long from, long size) {
    begin();
    enqueueCopy(asyncTarget.set(to), asyncSource.set(from), size);
  }

  /**
   * Enqueues a store of a 64-bit value to any memory that this device reaches, released to the
   * whole system after all work enqueued before it. Otherwise like {@link #copyAsync}.
   *
   * @param to address of the word, a multiple of 8
   * @param value the value to store
   * @throws DeviceFailure if the driver refuses
   */
  public void writeValue64(long to, long value) {
    begin();
    enqueueWrite(asyncTarget.set(to), value);
  }

  private void enqueueCopy(CudaPointer to, CudaPointer from, long size) {
    int result;
    try (EnqueueLock held = tryLock()) {
      result = JCudaDriver.cuMemcpyAsync(to, from, size, stream);
    }
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuMemcpyAsync(" + to + ", " + from + ", " + size + ")");
    }
  }

  private void enqueueWrite(CudaPointer to, long value) {
    int result;
    try (EnqueueLock held = tryLock()) {
      result = JCudaDriver.cuStreamWriteValue64(stream, to, value, WRITE_DEFAULT);
    }
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuStreamWriteValue64(" + to + ")");
    }
  }

  /**
   * {@inheritDoc}
   *
   * <p>One event per stream is enough, because a wait refers to the latest recording. If another
   * thread records the event again first, the wait covers more work, but only work that was
   * enqueued before the wait. Streams therefore never wait for each other in a cycle.
   */
  @Override
  protected final CudaStream enqueueWait(CudaStream other) {
    requireSameCapture(other);
    other.recordEvent();
    synchronized (lock) {
      begin();
      try (EnqueueLock held = tryLock()) {
        check(other.event.enqueueWaitOn(stream), "cuStreamWaitEvent");
      }
      ended();
    }
    return this;
  }

  /** Records the event after the work enqueued so far. */
  private void recordEvent() {
    synchronized (lock) {
      begin();
      try (EnqueueLock held = tryLock()) {
        check(event.record(this), "cuEventRecord");
      }
    }
  }

  /** Records a timing event after the work enqueued so far. */
  final void recordTime(CUevent at) {
    synchronized (lock) {
      begin();
      try (EnqueueLock held = tryLock()) {
        check(JCudaDriver.cuEventRecord(at, stream), "cuEventRecord");
      }
      ended();
    }
  }

  /**
   * Checks that the stream can still make progress; for callers that poll words which it writes.
   * Allocates nothing when it can. Any thread.
   *
   * @throws DeviceFailure if a kernel failed or the GPU is lost
   */
  public abstract void requireHealthy();

  final void check(int result, String call) {
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, call);
    }
  }

  final DeviceFailure failed(int result, String call) {
    return CudaError.of(result, device.index(), call + " on stream " + name);
  }

  @Override
  public String toString() {
    return "CudaStream(" + name + ")";
  }

  /**
   * A point in one stream's work that other streams wait for, as a reusable driver event that is
   * created at its first recording. Thread-safe. The caller has made the context of the stream
   * current.
   */
  static final class Event {
    // Both guarded by this.
    private CUevent event;
    private boolean destroyed;

    /** Moves the point to the end of the work enqueued so far on its stream, always the same. */
    private synchronized int record(CudaStream on) {
      if (event == null) {
        event = on.context.createEvent(CUevent_flags.CU_EVENT_DISABLE_TIMING);
      }
      return JCudaDriver.cuEventRecord(event, on.stream);
    }

    /**
     * Makes later work of a stream of any GPU wait for the point. After the event is destroyed,
     * there is no work to wait for.
     */
    private synchronized int enqueueWaitOn(CUstream stream) {
      return destroyed ? CUresult.CUDA_SUCCESS : JCudaDriver.cuStreamWaitEvent(stream, event, 0);
    }

    /** Destroys the event, once its stream has no work. Enqueued waits for it stay valid. */
    synchronized void destroy() {
      destroyed = true;
      if (event != null) {
        JCudaDriver.cuEventDestroy(event);
      }
    }
  }
}
