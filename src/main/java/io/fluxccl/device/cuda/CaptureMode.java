// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import jcuda.CudaException;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * Relaxes the driver's capture rules for the library's threads. While a thread captures a stream in
 * the global mode, certain calls of other threads, such as an event query or freeing memory, fail
 * and invalidate the capture. The library's threads use no captured stream, so they opt out.
 */
final class CaptureMode {
  private CaptureMode() {}

  /**
   * Permits such calls on the calling thread during other threads' captures, until the thread ends.
   */
  static void relax() {
    int[] mode = {CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED};
    try {
      JCudaDriver.cuThreadExchangeStreamCaptureMode(mode);
    } catch (CudaException e) { // the application lets JCuda throw
      return; // as before
    }
  }
}
