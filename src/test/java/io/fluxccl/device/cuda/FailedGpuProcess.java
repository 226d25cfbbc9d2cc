// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.KernelArgs;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;

/** Runs a failing kernel on GPU 0 and prints whether GPU 1 can still free memory. */
final class FailedGpuProcess {
  static final String FREED = "GPU 1 has freed";

  private FailedGpuProcess() {}

  public static void main(String[] args) {
    CudaDevice broken = CudaDevice.open(0);
    CudaDevice healthy = CudaDevice.open(1);
    StreamKernels.load(broken);
    long before = CudaMemoryContract.free(healthy);
    CudaBuffer buffer = healthy.allocate(2 << 20);
    CudaPinnedBuffer gate = broken.allocatePinned(8);
    CudaStream failing = broken.createStream("failing");
    // The kernel must not fail before the completion below has been enqueued.
    failing.launch(StreamKernels.SPIN, 1, 1, KernelArgs.of(gate, 1L));
    failing.launch(StreamKernels.TRAP, 1, 1, KernelArgs.NONE);
    CompletableFuture<Void> done = failing.completion();
    gate.buffer().putLongRelease(0, 1); // pairs with the acquire in the kernel
    Awaitility.await().until(done::isCompletedExceptionally);
    buffer.close();
    Awaitility.await()
        .atMost(Duration.ofSeconds(20))
        .until(() -> CudaMemoryContract.free(healthy) == before);
    System.out.println(FREED);
  }
}
