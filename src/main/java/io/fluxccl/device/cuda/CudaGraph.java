// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.RetainedBuffers;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A graph on one GPU, ready to launch. After a close, it is destroyed once the work enqueued on the
 * device's streams is done. The driver allows one thread at a time to use it, and runs one launch
 * at a time.
 */
final class CudaGraph implements DeviceGraph {
  private final CudaDevice device;
  private final String name;
  private final CUgraphExec handle;
  private final StreamEvent uploaded;
  private final Lifecycle lifecycle;
  private boolean isUploaded; // guarded by this

  /**
   * Takes over the recording's buffers and one user of the context.
   *
   * @param uploaded event that was recorded after the upload
   */
  CudaGraph(CudaRecording recording, CUgraphExec handle, StreamEvent uploaded) {
    this.device = recording.device;
    this.name = recording.name;
    this.handle = handle;
    this.uploaded = uploaded;
    RetainedBuffers buffers = recording.buffers();
    this.lifecycle = new Lifecycle(toString());
    // The driver may wait for running work, so the deferred-free thread calls it.
    lifecycle.own(
        () ->
            device.whenEnqueuedWorkIsDone(
                () -> device.context().deferredFree.execute(() -> destroy(buffers))));
  }

  @Override
  public CudaDevice device() {
    return device;
  }

  /** Enqueues a launch and returns the driver's result. The context is current. */
  synchronized int launchOn(CUstream stream) {
    lifecycle.checkOpen();
    if (!isUploaded) {
      isUploaded = uploaded.query() == CUresult.CUDA_SUCCESS;
      int result = isUploaded ? CUresult.CUDA_SUCCESS : uploaded.enqueueWaitOn(stream);
      if (result != CUresult.CUDA_SUCCESS) {
        return result;
      }
    }
    return JCudaDriver.cuGraphLaunch(handle, stream);
  }

  @Override
  public void close() {
    synchronized (this) { // waits for a launch that has passed checkOpen()
      if (!lifecycle.beginClose()) {
        return;
      }
    }
    device.remove(this);
    lifecycle.closeChildren();
  }

  private synchronized void destroy(RetainedBuffers buffers) {
    PrimaryContext context = device.context();
    try {
      context.makeCurrent();
      if (!isUploaded) {
        uploaded.await();
      }
      uploaded.destroy();
      context.check(JCudaDriver.cuGraphExecDestroy(handle), "cuGraphExecDestroy(" + name + ")");
    } finally {
      buffers.release();
      context.release();
    }
  }

  @Override
  public String toString() {
    return "CudaGraph(" + name + ")";
  }
}
