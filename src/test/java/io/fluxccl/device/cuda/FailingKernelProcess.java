// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.FailureAssertions;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Runs a failing kernel, which breaks the process's context of the GPU, and prints the effects. */
final class FailingKernelProcess {
  private FailingKernelProcess() {}

  public static void main(String[] args) throws Exception {
    CudaDevice device = CudaDevice.open(0);
    StreamKernels.load(device);
    CudaPinnedBuffer gate = device.allocatePinned(8);
    CudaBuffer large = device.allocate(4 << 20);
    CudaStream held = device.createStream("held");
    CudaStream failing = device.createStream("failing");
    held.launch(StreamKernels.SPIN, 1, 1, KernelArgs.of(gate, 1L));
    CompletableFuture<Void> other = held.completion();
    failing.launch(StreamKernels.TRAP, 1, 1, KernelArgs.NONE);
    CountDownLatch ran = new CountDownLatch(1);
    CompletableFuture<Void> own = failing.completion();
    device.whenEnqueuedWorkIsDone(ran::countDown);
    List<Boolean> failures =
        List.of(
            failed(own),
            failed(other),
            fails(() -> held.launch(StreamKernels.TRAP, 1, 1, KernelArgs.NONE)),
            failed(held.completion()),
            fails(held::requireHealthy),
            fails(() -> device.allocate(2 << 20)));
    System.out.println("own, other, launch, completion, health, allocation: " + failures);
    if (ran.await(60, TimeUnit.SECONDS)) {
      System.out.println("action after the work ran");
    }
    large.close();
    gate.close();
    device.close();
    System.out.println("closed");
  }

  private static boolean fails(Runnable call) {
    return failed(CompletableFuture.runAsync(call));
  }

  private static boolean failed(CompletableFuture<?> future) {
    return FailureAssertions.failureOf(future) instanceof DeviceFailure failure
        && CudaError.isSticky(failure.status());
  }
}
