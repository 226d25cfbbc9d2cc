// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.concurrent.UseCount;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.CudaException;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUlimit;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstream_flags;
import jcuda.driver.JCudaDriver;

/**
 * A GPU's primary context, and what all {@link CudaDevice}s of that GPU in this process share: one
 * object for each GPU, from its first user to its last. Users are devices, streams, pieces of
 * memory, mappings. Thread-safe.
 *
 * <p>The driver keeps a current context for each thread; its callers call {@link #makeCurrent()}
 * before.
 */
final class PrimaryContext extends UseCount {
  /** Guarded by itself. */
  private static final Map<Integer, PrimaryContext> OPEN = new HashMap<>();

  /** The driver's number of the GPU. */
  final int ordinal;

  final CUdevice device;
  final CUcontext handle;

  /** Where the GPU is, as the operating system writes it: {@code 0000:3b:00.0}. */
  final String pciBusId;

  final Reaper reaper;
  final CopyStream copyStream = new CopyStream(this);
  final Mappings mappings = new Mappings(this);

  /** For enqueuing on streams that kernels run on. */
  final EnqueueLock enqueueLock = new EnqueueLock();

  /** The modules loaded into it, by what they were loaded from; unloaded with it. */
  final Map<Object, CUmodule> modules = new ConcurrentHashMap<>();

  private PrimaryContext(int ordinal) {
    this.ordinal = ordinal;
    this.device = CudaDriver.device(ordinal);
    this.pciBusId = CudaDriver.pciBusId(ordinal);
    this.reaper = new Reaper(ordinal);
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
    reaper.execute(this::destroy);
  }

  private void destroy() {
    if (tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
      copyStream.close();
      // Others of this process may keep the context, but these modules are ours.
      modules.values().forEach(JCudaDriver::cuModuleUnload);
    }
    check(JCudaDriver.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  }

  /**
   * Makes it the calling thread's. Cheap, allocates nothing.
   *
   * @throws DeviceFailure if it is beyond use
   */
  void makeCurrent() {
    check(tryMakeCurrent(), "cuCtxSetCurrent");
  }

  /** Does the same and returns what the driver says. */
  int tryMakeCurrent() {
    try {
      return JCudaDriver.cuCtxSetCurrent(handle);
    } catch (CudaException e) {
      return CudaError.statusOf(e);
    }
  }

  /**
   * Frees something on the reaper's thread, with this context current, and then releases the user
   * that it was. What it throws is logged.
   */
  void freeLater(Runnable free) {
    reaper.execute(
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
   * Returns a stream that waits for no other.
   *
   * <p>The driver maps the streams of one priority onto a few hardware queues ({@code
   * CUDA_DEVICE_MAX_CONNECTIONS}). What is enqueued behind a kernel that waits for a peer holds up
   * such a queue, and with it other streams. So what a waiting kernel may wait for goes to streams
   * of the highest priority, which have queues of their own; and those that kernels run on are
   * given different queues, as far as there are any, by {@link EnqueueLock}.
   *
   * @param preferred whether of the highest priority
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

  /**
   * Makes room for the stack of a kernel's threads. Otherwise the driver makes it at the first
   * launch, for which it waits until no kernel runs, and holds up the caller: for ever, where one
   * of them waits for that launch.
   *
   * @param bytes of a thread
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
}
