// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A point in one stream's work that others wait for, again and again: the driver's event, made when
 * it is first needed. Thread-safe; the caller has made the context of the stream current.
 */
final class StreamEvent {
  private final PrimaryContext context;

  // Both guarded by this.
  private CUevent event;
  private boolean destroyed;

  StreamEvent(PrimaryContext context) {
    this.context = context;
  }

  /** Returns a new event of the driver's, which the caller destroys; the context is current. */
  static CUevent create(PrimaryContext context) {
    CUevent made = new CUevent();
    context.check(
        JCudaDriver.cuEventCreate(made, CUevent_flags.CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return made;
  }

  /**
   * Moves the point behind what is enqueued on its stream so far.
   *
   * @param stream always the same
   * @return what the driver says
   */
  synchronized int record(CUstream stream) {
    if (event == null) {
      event = create(context);
    }
    return JCudaDriver.cuEventRecord(event, stream);
  }

  /**
   * Lets what is enqueued on a stream from now on wait for the point. Once the event is destroyed
   * its stream's work is done, and there is nothing to wait for.
   *
   * @param stream of any GPU
   * @return what the driver says
   */
  synchronized int letWait(CUstream stream) {
    return destroyed ? CUresult.CUDA_SUCCESS : JCudaDriver.cuStreamWaitEvent(stream, event, 0);
  }

  /** Returns whether the work before the point is done, as the driver says. */
  synchronized int query() {
    return CudaError.query(event);
  }

  /** Blocks until the work before the point is done: for threads that may. */
  synchronized void await() {
    context.check(JCudaDriver.cuEventSynchronize(event), "cuEventSynchronize");
  }

  /** Destroys it, once no work is left on its stream; waits that are enqueued stay. */
  synchronized void destroy() {
    destroyed = true;
    if (event != null) {
      JCudaDriver.cuEventDestroy(event);
      event = null;
    }
  }
}
