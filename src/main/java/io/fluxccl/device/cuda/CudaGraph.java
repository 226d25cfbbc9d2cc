package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.RetainedBuffers;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * A graph on one GPU, ready to launch. Closing it takes effect behind the work enqueued on the
 * device's streams. The driver lets one thread at a time use it, and runs one launch at a time.
 */
final class CudaGraph implements DeviceGraph {
  private final CudaDevice device;
  private final String name;
  private final CUgraphExec handle;
  private final StreamEvent uploaded;
  private final RetainedBuffers buffers;

  // Both guarded by this.
  private boolean isUploaded;
  private boolean closed;

  /**
   * Takes over one user of the context.
   *
   * @param uploaded recorded behind the upload
   * @param buffers that it keeps
   */
  CudaGraph(
      CudaDevice device,
      String name,
      CUgraphExec handle,
      StreamEvent uploaded,
      RetainedBuffers buffers) {
    this.device = device;
    this.name = name;
    this.handle = handle;
    this.uploaded = uploaded;
    this.buffers = buffers;
  }

  @Override
  public CudaDevice device() {
    return device;
  }

  /** Enqueues a launch; the context is current. Gives what the driver says. */
  synchronized int launchOn(CUstream stream) {
    if (closed) {
      throw new InvalidUsage(this + " is closed");
    }
    if (!isUploaded) {
      isUploaded = uploaded.query() == CUresult.CUDA_SUCCESS;
      int result = isUploaded ? CUresult.CUDA_SUCCESS : uploaded.letWait(stream);
      if (result != CUresult.CUDA_SUCCESS) {
        return result;
      }
    }
    return JCudaDriver.cuGraphLaunch(handle, stream);
  }

  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    device.remove(this);
    // The driver may wait for running work, so the reaper calls it.
    device.whenEnqueuedWorkIsDone(() -> device.context().reaper().execute(this::destroy));
  }

  private synchronized void destroy() {
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
