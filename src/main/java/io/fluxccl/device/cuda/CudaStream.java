package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A stream of a GPU: one that runs what it is given, or one that records it for a graph. Any
 * threads may enqueue, also at the same time, but for {@link #copyAsync} and {@link #writeValue64};
 * on a recording stream the recording thread.
 *
 * <p>A kernel that fails takes the GPU's context with it: the futures of all streams of the GPU in
 * this process end with {@link DeviceFailure}, and so does every later call. Work that is enqueued
 * can't be taken back: {@link #close()} fails the futures, and the work runs to its end.
 */
public abstract class CudaStream implements DeviceStream {
  static final int WRITE_DEFAULT = 0; // behind a barrier for all that was enqueued before

  private static final int STATIC_SHARED_LIMIT = 48 * 1024;

  final CudaDevice device;
  final PrimaryContext context;
  final String name;
  final CUstream stream;
  final Object lock = new Object();

  /** Recorded on this stream for others to wait for. */
  final StreamEvent event;

  // Of the thread that uses copyAsync and writeValue64.
  private final CudaPointer asyncTarget = new CudaPointer();
  private final CudaPointer asyncSource = new CudaPointer();

  // All guarded by lock.
  private final KernelParameters parameters;

  /** Whether the last work enqueued is a launch that the next one may overlap. */
  private boolean lastMayOverlap;

  private final CudaPointer target = new CudaPointer();
  private final CudaPointer source = new CudaPointer();

  CudaStream(CudaDevice device, String name, CUstream stream) {
    this.device = device;
    this.context = device.context();
    this.name = name;
    this.stream = stream;
    this.event = new StreamEvent(context);
    this.parameters = new KernelParameters(device);
  }

  /** Called before each enqueuing: refuses a closed stream, makes the context current. */
  final void begin() {
    lastMayOverlap = false;
    ready();
  }

  /** The part of {@link #begin} that differs between kinds of streams. */
  abstract void ready();

  /** Called after each enqueuing. */
  void ended() {}

  /**
   * Called right before a call of the driver that enqueues: see {@link EnqueueLock}.
   *
   * @return the argument of {@link #unlock}, which follows the call whatever comes of it
   */
  boolean tryLock() {
    return false;
  }

  void unlock(boolean locked) {}

  /** Called with each buffer that is about to be used. */
  void keep(DeviceBuffer buffer) {}

  /** Called with each launch's arguments. */
  void keep(KernelArgs args) {}

  @Override
  public final CudaDevice device() {
    return device;
  }

  /**
   * The driver's handle, for work that FluxCCL has no method for. Calls need the device's context
   * ({@link CudaDevice#makeCurrent()}); what they enqueue counts for {@link #completion()} like
   * everything else, and is recorded when this stream records. Not to be destroyed. Kernels that
   * wait for other streams of this GPU are better launched by {@link #launch}: what two threads
   * enqueue at the same moment may end up in one of the GPU's queues, one behind the other, and
   * only this library's own calls take turns.
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
    int sharedBytes =
        kernel instanceof LaunchableKernel ? ((LaunchableKernel) kernel).sharedBytes() : 0;
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
    if (!(kernel instanceof LaunchableKernel launchable)) {
      throw InvalidUsage.of(
          "kernel %s is for %s, this is GPU %s; take one from a CudaModule",
          kernel.name(), kernel.kind(), device.index());
    }
    device.checkLaunch(kernel, gridDim, blockDim, sharedBytes);
    synchronized (lock) {
      boolean overlaps = launchable.overlaps() && OverlappingLaunch.worksOn(device);
      boolean both = overlaps && lastMayOverlap;
      begin();
      keep(args);
      CUfunction function = launchable.functionOn(device);
      if (sharedBytes > STATIC_SHARED_LIMIT) {
        allowShared(kernel, function, sharedBytes);
      }
      CudaPointer packed = parameters.pack(kernel, launchable.signatureOn(device), args);
      int result;
      boolean locked = tryLock();
      try {
        result =
            both
                ? OverlappingLaunch.launch(function, gridDim, blockDim, sharedBytes, stream, packed)
                : JCudaDriver.cuLaunchKernel(
                    function, gridDim, 1, 1, blockDim, 1, 1, sharedBytes, stream, packed, null);
      } finally {
        unlock(locked);
      }
      ended();
      lastMayOverlap = overlaps;
      if (result != CUresult.CUDA_SUCCESS) {
        throw failed(
            result,
            String.format(
                "cuLaunchKernel(%s <<<%s, %s, %s>>>)",
                kernel.name(), gridDim, blockDim, sharedBytes));
      }
    }
    return this;
  }

  private void allowShared(Kernel kernel, CUfunction function, int sharedBytes) {
    int result =
        JCudaDriver.cuFuncSetAttribute(
            function,
            CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            sharedBytes);
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuFuncSetAttribute(" + kernel.name() + ", " + sharedBytes + ")");
    }
  }

  @Override
  public CudaStream copy(
      DeviceBuffer to, long targetOffset, DeviceBuffer from, long sourceOffset, long size) {
    enqueueCopy(
        addressOf("target", to, targetOffset, size),
        addressOf("source", from, sourceOffset, size),
        size);
    return this;
  }

  @Override
  public CudaStream copy(
      PinnedBuffer to, int targetOffset, DeviceBuffer from, long sourceOffset, int size) {
    enqueueCopy(
        addressOf("target", to, targetOffset, size),
        addressOf("source", from, sourceOffset, size),
        size);
    return this;
  }

  @Override
  public CudaStream copy(
      DeviceBuffer to, long targetOffset, PinnedBuffer from, int sourceOffset, int size) {
    enqueueCopy(
        addressOf("target", to, targetOffset, size),
        addressOf("source", from, sourceOffset, size),
        size);
    return this;
  }

  private void enqueueCopy(long to, long from, long size) {
    synchronized (lock) {
      begin();
      if (size > 0) {
        enqueueCopy(target.set(to), source.set(from), size);
      }
    }
  }

  @Override
  public CudaStream writeValue(DeviceBuffer buffer, long offset, long value) {
    checkAligned("offset", offset);
    enqueueWrite(addressOf("target", buffer, offset, Long.BYTES), value);
    return this;
  }

  @Override
  public CudaStream writeValue(PinnedBuffer buffer, int index, long value) {
    checkAligned("index", index);
    enqueueWrite(addressOf("target", buffer, index, Long.BYTES), value);
    return this;
  }

  private void enqueueWrite(long to, long value) {
    synchronized (lock) {
      begin();
      enqueueWrite(target.set(to), value);
    }
  }

  private static void checkAligned(String what, long offset) {
    if (offset % Long.BYTES != 0) {
      throw new InvalidUsage(what + "=" + offset + " of a 64-bit value; give a multiple of 8");
    }
  }

  private long addressOf(String what, DeviceBuffer buffer, long offset, long size) {
    long address = CudaBuffer.addressFor(device, what, buffer, offset, size);
    keep(buffer);
    return address;
  }

  private static long addressOf(String what, PinnedBuffer buffer, int offset, int size) {
    return CudaPinnedBuffer.addressFor(what, buffer, offset, size);
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
   * @param value what
   * @throws DeviceFailure if the driver refuses
   */
  public void writeValue64(long to, long value) {
    begin();
    enqueueWrite(asyncTarget.set(to), value);
  }

  private void enqueueCopy(CudaPointer to, CudaPointer from, long size) {
    int result;
    boolean locked = tryLock();
    try {
      result = JCudaDriver.cuMemcpyAsync(to, from, size, stream);
    } finally {
      unlock(locked);
    }
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuMemcpyAsync(" + to + ", " + from + ", " + size + ")");
    }
  }

  private void enqueueWrite(CudaPointer to, long value) {
    int result;
    boolean locked = tryLock();
    try {
      result = JCudaDriver.cuStreamWriteValue64(stream, to, value, WRITE_DEFAULT);
    } finally {
      unlock(locked);
    }
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuStreamWriteValue64(" + to + ")");
    }
  }

  /**
   * {@inheritDoc}
   *
   * <p>The other stream may be one of another GPU.
   */
  @Override
  public abstract CudaStream waitFor(DeviceStream other);

  /** Enqueues the wait for a point that another stream's event was recorded at. */
  void enqueueWait(StreamEvent reached) {
    synchronized (lock) {
      begin();
      int result;
      boolean locked = tryLock();
      try {
        result = reached.letWait(stream);
      } finally {
        unlock(locked);
      }
      ended();
      if (result != CUresult.CUDA_SUCCESS) {
        throw failed(result, "cuStreamWaitEvent");
      }
    }
  }

  /** Notes how far this stream is enqueued. */
  StreamEvent recordEvent() {
    synchronized (lock) {
      begin();
      int result;
      boolean locked = tryLock();
      try {
        result = event.record(stream);
      } finally {
        unlock(locked);
      }
      if (result != CUresult.CUDA_SUCCESS) {
        throw failed(result, "cuEventRecord");
      }
      return event;
    }
  }

  InvalidUsage cannotWaitFor(DeviceStream other, String why) {
    return new InvalidUsage("stream " + name + " can't wait for " + other + ": " + why);
  }

  @Override
  public abstract CudaStream branch(String branchName);

  @Override
  public abstract CudaStream launch(DeviceGraph graph);

  /**
   * Checks that the stream can still make progress; for callers that poll words which it writes.
   * Allocates nothing when it can. Any thread.
   *
   * @throws DeviceFailure if a kernel failed or the GPU is lost
   */
  public abstract void requireHealthy();

  DeviceFailure failed(int result, String call) {
    return CudaError.of(result, device.index(), call + " on stream " + name);
  }

  @Override
  public String toString() {
    return "CudaStream(" + name + ")";
  }
}
