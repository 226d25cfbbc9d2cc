package io.fluxccl.device.cuda;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.completion.CompletionAgent;
import io.fluxccl.completion.CompletionQueue;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.concurrent.CompletableFuture;
import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A stream of a GPU; waits for no other stream, nor they for it. Any threads may enqueue, also at
 * the same time, but for {@link #copyAsync} and {@link #writeValue64}.
 *
 * <p>A kernel that fails takes the GPU's context with it: the futures of all streams of the GPU in
 * this process end with {@link DeviceFailure}, and so does every later call. Work that is enqueued
 * can't be taken back: {@link #close()} fails the futures, and the work runs to its end.
 */
public final class CudaStream implements DeviceStream {
  private static final int WRITE_DEFAULT = 0; // behind a barrier for all that was enqueued before
  private static final int STATIC_SHARED_LIMIT = 48 * 1024;

  private final CudaDevice device;
  private final PrimaryContext context;
  private final String name;
  private final CUstream stream;
  private final CudaPinnedBuffer line;
  private final CompletionQueue queue;

  // Of the thread that uses copyAsync and writeValue64.
  private final CudaPointer asyncTarget = new CudaPointer();
  private final CudaPointer asyncSource = new CudaPointer();

  /**
   * Whether something may have been enqueued behind the last stored number. Set after enqueuing and
   * cleared before storing a number, so that no work is missed.
   */
  private volatile boolean dirty;

  /** Whether the user has the handle: then nobody knows what is enqueued. */
  private volatile boolean shared;

  private final Object lock = new Object();

  // All guarded by lock.
  private final KernelParameters parameters;
  private final CudaPointer target = new CudaPointer();
  private final CudaPointer source = new CudaPointer();
  private final CudaPointer linePointer;
  private boolean registered;
  private boolean destroyed;

  /** Written under lock. */
  private volatile boolean closed;

  private CudaStream(
      CudaDevice device,
      String name,
      CUstream stream,
      CudaPinnedBuffer line,
      CompletionAgent agent) {
    this.device = device;
    this.context = device.context();
    this.name = name;
    this.stream = stream;
    this.line = line;
    this.linePointer = new CudaPointer(line.deviceAddress());
    this.parameters = new KernelParameters(device);
    this.queue = agent.createQueue(name, line.buffer(), this::failure);
  }

  static CudaStream create(
      CudaDevice device, String name, boolean preferred, CompletionAgent agent) {
    PrimaryContext context = device.context();
    CudaPinnedBuffer line = device.pinnedPiece(CompletionQueue.LINE_LENGTH);
    context.retain();
    try {
      CUstream stream = context.createStream(preferred);
      return new CudaStream(device, name, stream, line, agent);
    } catch (RuntimeException | Error e) {
      line.closeNow();
      context.release();
      throw e;
    }
  }

  @Override
  public CudaDevice device() {
    return device;
  }

  /**
   * The driver's handle, for work that FluxCCL has no method for. Calls need the device's context
   * ({@link CudaDevice#makeCurrent()}); what they enqueue counts for {@link #completion()} like
   * everything else. Not to be destroyed.
   */
  public CUstream handle() {
    shared = true;
    return stream;
  }

  /**
   * {@inheritDoc}
   *
   * <p>Arguments: {@code Integer}, {@code Long}, {@code Float} and {@code Double} as they are;
   * buffers and abort flags as 64-bit addresses; {@link io.fluxccl.device.DeviceHandle}s, {@code
   * byte[]} and the remaining bytes of a {@code ByteBuffer} as structures by value. Types and sizes
   * must be those of the kernel's parameters: number and sizes are checked where the driver tells
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
    if (!(kernel instanceof LaunchableKernel)) {
      throw new InvalidUsage(
          "kernel "
              + kernel.name()
              + " is for "
              + kernel.kind()
              + ", this is GPU "
              + device.index()
              + "; take one from a CudaModule");
    }
    device.checkLaunch(kernel, gridDim, blockDim, sharedBytes);
    synchronized (lock) {
      begin();
      CUfunction function = ((LaunchableKernel) kernel).functionOn(device);
      if (sharedBytes > STATIC_SHARED_LIMIT) {
        allowShared(kernel, function, sharedBytes);
      }
      int result =
          JCudaDriver.cuLaunchKernel(
              function,
              gridDim,
              1,
              1,
              blockDim,
              1,
              1,
              sharedBytes,
              stream,
              parameters.pack(kernel, ((LaunchableKernel) kernel).signatureOn(device), args),
              null);
      ended();
      if (result != CUresult.CUDA_SUCCESS) {
        throw failed(
            result,
            "cuLaunchKernel("
                + kernel.name()
                + " <<<"
                + gridDim
                + ", "
                + blockDim
                + ", "
                + sharedBytes
                + ">>>)");
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
    return CudaBuffer.addressFor(device, what, buffer, offset, size);
  }

  private static long addressOf(String what, PinnedBuffer buffer, int offset, int size) {
    return CudaPinnedBuffer.addressFor(what, buffer, offset, size);
  }

  /**
   * Enqueues a copy between any memory that this device reaches: its own, mapped, pinned. Checks
   * nothing but that the stream is open, allocates nothing, takes no lock of this library; not to
   * be called by two threads at once, nor {@link #writeValue64} meanwhile.
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
    int result = JCudaDriver.cuMemcpyAsync(to, from, size, stream);
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuMemcpyAsync(" + to + ", " + from + ", " + size + ")");
    }
  }

  private void enqueueWrite(CudaPointer to, long value) {
    int result = JCudaDriver.cuStreamWriteValue64(stream, to, value, WRITE_DEFAULT);
    ended();
    if (result != CUresult.CUDA_SUCCESS) {
      throw failed(result, "cuStreamWriteValue64(" + to + ")");
    }
  }

  private void begin() {
    if (closed) {
      throw new InvalidUsage("stream " + name + " is closed");
    }
    context.makeCurrent();
  }

  private void ended() {
    if (!dirty) {
      dirty = true;
    }
  }

  private DeviceFailure failed(int result, String call) {
    return CudaError.of(result, device.index(), call + " on stream " + name);
  }

  /**
   * Looks whether the stream can still get anywhere; for who polls words that it is to write.
   * Allocates nothing when it can. Any thread.
   *
   * @throws DeviceFailure if a kernel failed or the GPU is lost
   */
  public void requireHealthy() {
    synchronized (lock) {
      if (!destroyed) {
        DeviceFailure failure = failure();
        if (failure != null) {
          throw failure;
        }
      }
    }
  }

  /** Asked by the completion thread; the stream is not destroyed while somebody waits for it. */
  private DeviceFailure failure() {
    int result = context.tryMakeCurrent();
    if (result == CUresult.CUDA_SUCCESS) {
      result = JCudaDriver.cuStreamQuery(stream);
    }
    return result == CUresult.CUDA_SUCCESS || result == CUresult.CUDA_ERROR_NOT_READY
        ? null
        : failed(result, "work");
  }

  @Override
  public CompletableFuture<Void> completion() {
    synchronized (lock) {
      if (closed) {
        return CompletableFuture.failedFuture(closedFailure());
      }
      try {
        long sequence = mark();
        registered = true;
        return queue.register(sequence);
      } catch (DeviceFailure e) {
        return CompletableFuture.failedFuture(e);
      }
    }
  }

  /** Lets the stream store the next number behind everything enqueued so far. */
  private long mark() {
    context.makeCurrent();
    dirty = false;
    long sequence = queue.next();
    int result = JCudaDriver.cuStreamWriteValue64(stream, linePointer, sequence, WRITE_DEFAULT);
    if (result != CUresult.CUDA_SUCCESS) {
      dirty = true;
      throw failed(result, "cuStreamWriteValue64(completion " + sequence + ")");
    }
    return sequence;
  }

  /**
   * Runs an action behind the work enqueued so far, also when the stream is closed.
   *
   * @return false if there is no such work and the action is not run
   */
  boolean runAfterEnqueuedWork(Runnable action) {
    synchronized (lock) {
      if (destroyed) {
        return false;
      }
      try {
        boolean unmarked = !closed && (dirty || shared);
        long sequence = unmarked ? mark() : queue.issued();
        if (queue.reached() >= sequence) {
          return false;
        }
        registered = true;
        queue.afterwards(sequence, action);
        return true;
      } catch (DeviceFailure e) {
        return false; // nothing runs on this GPU any more
      }
    }
  }

  @Override
  public void close() {
    synchronized (lock) {
      if (closed) {
        return;
      }
      closed = true;
      long last = queue.issued();
      boolean usable = true;
      try {
        if (dirty || shared) {
          last = mark();
        }
      } catch (DeviceFailure e) {
        usable = false;
      }
      if (usable && (registered || queue.reached() < last)) {
        queue.afterwards(last, this::destroy);
      } else if (registered) {
        queue.afterwards(0, this::destroy); // the agent may be looking at the line
      } else {
        destroy();
      }
    }
    queue.close(closedFailure());
  }

  /** The driver lets go of what it needs when the work is done; on this side nobody waits. */
  private void destroy() {
    synchronized (lock) {
      destroyed = true;
      queue.remove();
      device.remove(this);
      // Both fail once a kernel failed; then the stream is gone with the context.
      if (context.tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
        JCudaDriver.cuStreamDestroy(stream);
      }
      line.closeNow();
      context.release();
    }
  }

  private Aborted closedFailure() {
    return new Aborted(FluxCclException.NO_RANK, "stream " + name + " was closed");
  }

  @Override
  public String toString() {
    return "CudaStream(" + name + ")";
  }
}
