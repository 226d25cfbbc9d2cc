// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A point in one stream's work that other streams wait for, as a reusable driver event that is
 * created at its first recording. Thread-safe. The caller has made the context of the stream
 * current.
 */
final class StreamEvent {
  private final PrimaryContext context;

  // Both guarded by this.
  private CUevent event;
  private boolean destroyed;

  StreamEvent(PrimaryContext context) {
    this.context = context;
  }

  /** Returns a new driver event, which the caller destroys; the context is current. */
  static CUevent create(PrimaryContext context) {
    CUevent made = new CUevent();
    context.check(
        JCudaDriver.cuEventCreate(made, CUevent_flags.CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return made;
  }

  /**
   * Moves the point to the end of the work enqueued on its stream so far.
   *
   * @param stream always the same
   * @return the driver's result
   */
  synchronized int record(CUstream stream) {
    if (event == null) {
      event = create(context);
    }
    return JCudaDriver.cuEventRecord(event, stream);
  }

  /**
   * Makes later work of a stream wait for the point. After the event is destroyed, there is no work
   * to wait for.
   *
   * @param stream of any GPU
   * @return the driver's result
   */
  synchronized int enqueueWaitOn(CUstream stream) {
    return destroyed ? CUresult.CUDA_SUCCESS : JCudaDriver.cuStreamWaitEvent(stream, event, 0);
  }

  /** Returns the driver's result for the work before the point. */
  synchronized int query() {
    return CudaError.query(event);
  }

  /** Blocks until the work before the point is done. */
  synchronized void await() {
    context.check(JCudaDriver.cuEventSynchronize(event), "cuEventSynchronize");
  }

  /** Destroys the event, once its stream has no work. Enqueued waits for it stay valid. */
  synchronized void destroy() {
    destroyed = true;
    if (event != null) {
      JCudaDriver.cuEventDestroy(event);
      event = null;
    }
  }
}
