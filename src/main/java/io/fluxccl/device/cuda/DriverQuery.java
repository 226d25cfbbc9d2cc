package io.fluxccl.device.cuda;

import jcuda.CudaException;
import jcuda.driver.CUevent;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * Questions to the driver that are asked over and over, and whose usual answer, {@link
 * CUresult#CUDA_ERROR_NOT_READY}, is no error: not even where the application lets JCuda throw what
 * is no success. Who asks makes the context current before.
 */
final class DriverQuery {
  private DriverQuery() {}

  /** Whether the work before an event is done, as the driver says. */
  static int of(CUevent event) {
    try {
      return JCudaDriver.cuEventQuery(event);
    } catch (CudaException e) {
      return CudaError.statusOf(e);
    }
  }

  /** Whether the work of a stream is done, as the driver says. */
  static int of(CUstream stream) {
    try {
      return JCudaDriver.cuStreamQuery(stream);
    } catch (CudaException e) {
      return CudaError.statusOf(e);
    }
  }
}
