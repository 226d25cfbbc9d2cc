// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import jcuda.CudaException;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * While a thread of this process captures a stream in the driver's global mode, the driver refuses
 * calls of other threads that might disturb a capture, such as querying an event or freeing memory,
 * and spoils the capture. The library's threads touch no stream that is captured, so they opt out.
 */
final class CaptureMode {
  private CaptureMode() {}

  /** Lets the calling thread, for its life, make such calls during other threads' captures. */
  static void relax() {
    int[] mode = {CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED};
    try {
      JCudaDriver.cuThreadExchangeStreamCaptureMode(mode);
    } catch (CudaException e) { // the application lets JCuda throw
      return; // as before
    }
  }
}
