// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.concurrent.UseCount;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.CudaException;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUevent;
import jcuda.driver.CUlimit;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.CUstream_flags;
import jcuda.driver.JCudaDriver;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A GPU's primary context, and the objects that all {@link CudaDevice}s of that GPU in this process
 * share. One object per GPU exists from its first user to its last. Users are devices, streams,
 * pieces of memory and mappings. Thread-safe.
 *
 * <p>The driver keeps a current context for each thread. Call {@link #makeCurrent()} before other
 * driver functions.
 */
final class PrimaryContext extends UseCount {
  /** Guarded by itself. */
  private static final Map<Integer, PrimaryContext> OPEN = new HashMap<>();

  /** The driver's number of the GPU. */
  final int ordinal;

  final CUdevice device;
  final CUcontext handle;

  /** The PCI address of the GPU, as the operating system writes it: {@code 0000:3b:00.0}. */
  final String pciBusId;

  final DeferredFree deferredFree;
  final CopyStream copyStream = new CopyStream();

  /**
   * The mappings by allocation. The future of a mapping in progress completes soon, with null if it
   * fails.
   */
  final ConcurrentHashMap<CudaMemory.Id, CompletableFuture<CudaMapping>> mappings =
      new ConcurrentHashMap<>();

  /** For enqueuing on streams that kernels run on. */
  final EnqueueLock enqueueLock = new EnqueueLock();

  /**
   * The modules loaded into it, by the object that loaded them. They are unloaded with the context.
   */
  final Map<Object, CUmodule> modules = new ConcurrentHashMap<>();

  private PrimaryContext(int ordinal) {
    this.ordinal = ordinal;
    this.device = CudaDriver.device(ordinal);
    this.pciBusId = CudaDriver.pciBusId(ordinal);
    this.deferredFree = new DeferredFree(ordinal);
    this.handle = new CUcontext();
    CudaError.check(
        JCudaDriver.cuDevicePrimaryCtxRetain(handle, device), ordinal, "cuDevicePrimaryCtxRetain");
  }

  /**
   * Returns the context of a GPU, with one more user.
   *
   * @throws DeviceFailure if there is no driver
   * @throws io.fluxccl.InvalidUsage if there is no such GPU
   */
  static PrimaryContext retain(int ordinal) {
    CudaDriver.requireGpu(ordinal);
    synchronized (OPEN) {
      PrimaryContext open = OPEN.get(ordinal);
      if (open == null || !open.tryRetain()) {
        open = new PrimaryContext(ordinal);
        OPEN.put(ordinal, open);
      }
      return open;
    }
  }

  @Override
  protected void lastUserLeft() {
    synchronized (OPEN) {
      OPEN.remove(ordinal, this);
    }
    deferredFree.execute(this::destroy);
  }

  private void destroy() {
    if (tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
      copyStream.close();
      // Other code in this process may keep the context, but these modules belong to this object.
      modules.values().forEach(JCudaDriver::cuModuleUnload);
    }
    check(JCudaDriver.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  }

  /**
   * Makes it the calling thread's current context. Cheap, allocates nothing.
   *
   * @throws DeviceFailure if the context is unusable
   */
  void makeCurrent() {
    check(tryMakeCurrent(), "cuCtxSetCurrent");
  }

  /** Makes it the calling thread's current context and returns the driver's result. */
  int tryMakeCurrent() {
    try {
      return JCudaDriver.cuCtxSetCurrent(handle);
    } catch (CudaException e) {
      return CudaError.statusOf(e);
    }
  }

  /**
   * Relaxes the driver's capture rules for the calling thread, until it ends. While a thread
   * captures a stream in the global mode, certain calls of other threads, such as an event query or
   * freeing memory, fail and invalidate the capture. The library's threads use no captured stream,
   * so they opt out.
   */
  static void relaxCapture() {
    int[] mode = {CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED};
    CudaError.result(() -> JCudaDriver.cuThreadExchangeStreamCaptureMode(mode));
  }

  /**
   * Runs {@code free} on the deferred-free thread, with this context current, and then releases one
   * use of this context. Failures are logged.
   */
  void freeLater(Runnable free) {
    deferredFree.execute(
        () -> {
          try {
            makeCurrent();
            free.run();
          } finally {
            release();
          }
        });
  }

  /**
   * Creates a stream that does not synchronize with the default stream.
   *
   * <p>The driver maps the streams of one priority onto a few hardware queues ({@code
   * CUDA_DEVICE_MAX_CONNECTIONS}). Work enqueued after a kernel that waits for a peer blocks such a
   * queue, and so other streams. Work that a kernel may wait for is therefore enqueued on streams
   * of the highest priority, which have their own queues. {@link EnqueueLock} distributes the
   * streams that run kernels over different queues, if there are enough.
   *
   * @param preferred whether the stream has the highest priority
   * @return the stream; the caller destroys it
   */
  CUstream createStream(boolean preferred) {
    makeCurrent();
    int[] highest = new int[1];
    check(
        JCudaDriver.cuCtxGetStreamPriorityRange(new int[1], highest),
        "cuCtxGetStreamPriorityRange");
    CUstream stream = new CUstream();
    check(
        JCudaDriver.cuStreamCreateWithPriority(
            stream, CUstream_flags.CU_STREAM_NON_BLOCKING, preferred ? highest[0] : 0),
        "cuStreamCreate");
    return stream;
  }

  /** Returns a new event, which the caller destroys; the context is current. */
  CUevent createEvent(int flags) {
    CUevent event = new CUevent();
    check(JCudaDriver.cuEventCreate(event, flags), "cuEventCreate");
    return event;
  }

  /**
   * Reserves memory for the stack of a kernel's threads. Otherwise the driver reserves it at the
   * first launch, where it blocks the caller until no kernel runs. If a running kernel waits for
   * that launch, both wait forever.
   *
   * @param bytes stack size of a thread
   */
  synchronized void reserveStack(long bytes) {
    makeCurrent();
    long[] limit = new long[1];
    check(
        JCudaDriver.cuCtxGetLimit(limit, CUlimit.CU_LIMIT_STACK_SIZE), "cuCtxGetLimit(STACK_SIZE)");
    if (bytes > limit[0]) {
      check(
          JCudaDriver.cuCtxSetLimit(CUlimit.CU_LIMIT_STACK_SIZE, bytes),
          "cuCtxSetLimit(STACK_SIZE, " + bytes + ")");
    }
  }

  /** Returns one of the {@code CU_DEVICE_ATTRIBUTE_} values. */
  int attribute(int attribute) {
    int[] value = new int[1];
    check(
        JCudaDriver.cuDeviceGetAttribute(value, attribute, device),
        "cuDeviceGetAttribute(" + attribute + ")");
    return value[0];
  }

  void check(int result, String call) {
    CudaError.check(result, ordinal, call);
  }

  @Override
  public String toString() {
    return "GPU " + ordinal + " (" + pciBusId + ")";
  }

  /**
   * Runs synchronous copies on their own stream, so that they wait for no other work. Other streams
   * may run kernels that wait for the caller. Copies through page-locked memory, one piece at a
   * time; one caller at a time.
   */
  final class CopyStream {
    private static final int STAGING_LENGTH = 1 << 20;

    // All guarded by this; made before the first copy.
    private final CudaPointer target = new CudaPointer();
    private final CudaPointer source = new CudaPointer();
    private CUstream stream;
    private PinnedBlock memory;
    private UnsafeBuffer staging;

    /** Copies the remaining bytes to device memory; returns when the copy is done. */
    synchronized void upload(long address, ByteBuffer bytes) {
      open();
      long to = address;
      while (bytes.hasRemaining()) {
        int length = Math.min(bytes.remaining(), STAGING_LENGTH);
        staging.putBytes(0, bytes, length);
        copy(to, memory.deviceAddress, length);
        to += length;
      }
    }

    /** Fills the buffer from device memory; returns when the copy is done. */
    synchronized void download(long address, ByteBuffer bytes) {
      open();
      long from = address;
      while (bytes.hasRemaining()) {
        int length = Math.min(bytes.remaining(), STAGING_LENGTH);
        copy(memory.deviceAddress, from, length);
        staging.getBytes(0, bytes, length);
        from += length;
      }
    }

    /** Zeroes device memory; returns when it is done. */
    synchronized void zero(long address, long size) {
      open();
      check(
          JCudaDriver.cuMemsetD8Async(target.set(address), (byte) 0, size, stream),
          "cuMemsetD8Async(" + size + ")");
      await();
    }

    private void copy(long to, long from, int length) {
      check(
          JCudaDriver.cuMemcpyAsync(target.set(to), source.set(from), length, stream),
          "cuMemcpyAsync(" + length + ")");
      await();
    }

    private void await() {
      check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }

    /**
     * Allocates the stream and the staging memory, so that nothing is allocated later, while
     * kernels run.
     */
    synchronized void open() {
      makeCurrent();
      if (stream == null) {
        stream = createStream(true);
      }
      if (memory == null) {
        memory = PinnedBlock.allocateUncounted(PrimaryContext.this, STAGING_LENGTH);
        staging = memory.view(0, STAGING_LENGTH);
      }
    }

    /** Frees the stream and the memory. Called once, by the context's deferred-free thread. */
    synchronized void close() {
      if (stream != null) {
        JCudaDriver.cuStreamDestroy(stream);
      }
      if (memory != null) {
        memory.free();
      }
    }
  }
}
