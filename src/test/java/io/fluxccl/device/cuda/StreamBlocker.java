// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.PinnedBuffer;
import jcuda.driver.CUresult;
import jcuda.driver.CUstreamWaitValue_flags;
import jcuda.driver.JCudaDriver;

/** Blocks a stream, like a waiting kernel but without a launch, until {@link #letGo} is called. */
public final class StreamBlocker implements AutoCloseable {
  private final PinnedBuffer word;

  private StreamBlocker(PinnedBuffer word) {
    this.word = word;
  }

  /**
   * Enqueues the wait while no memory is freed. Otherwise a concurrent free would wait for the
   * blocked stream, and the driver would block all other calls, including the one that releases the
   * stream.
   */
  public static StreamBlocker of(CudaDevice device, CudaStream stream) {
    PinnedBuffer word = device.allocatePinned(64);
    device.makeCurrent();
    CudaPointer pointer = new CudaPointer(word.deviceAddress());
    int atLeast = CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ;
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      assertThat(JCudaDriver.cuStreamWaitValue64(stream.handle(), pointer, 1, atLeast))
          .isEqualTo(CUresult.CUDA_SUCCESS);
    }
    return new StreamBlocker(word);
  }

  public void letGo() {
    word.buffer().putLongRelease(0, 1);
  }

  @Override
  public void close() {
    letGo();
    word.close();
  }
}
