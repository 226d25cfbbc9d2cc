// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.cuda.GatedEnqueue;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUresult;
import jcuda.driver.CUstreamWaitValue_flags;
import jcuda.driver.JCudaDriver;

/** Blocks a stream until {@link #letGo} is called. */
final class StreamBlocker implements AutoCloseable {
  private final PinnedBuffer word;

  private StreamBlocker(PinnedBuffer word) {
    this.word = word;
  }

  static StreamBlocker of(CudaDevice device, CudaStream stream) {
    PinnedBuffer word = device.allocatePinned(64);
    stream.writeValue(word, 8, 0); // makes the GPU's context current on this thread
    GatedEnqueue.run(
        () ->
            assertThat(
                    JCudaDriver.cuStreamWaitValue64(
                        stream.handle(),
                        new CUdeviceptr().withByteOffset(word.deviceAddress()),
                        1,
                        CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ))
                .isEqualTo(CUresult.CUDA_SUCCESS));
    return new StreamBlocker(word);
  }

  void letGo() {
    word.buffer().putLongRelease(0, 1);
  }

  @Override
  public void close() {
    letGo();
    word.close();
  }
}
