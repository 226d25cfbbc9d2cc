// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.KernelArgs;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Runs a failing kernel, which breaks the process's context of the GPU, and prints the effects. */
final class FailingKernelProcess {
  static final List<String> LINES =
      List.of(
          "future of its stream: true",
          "future of another stream: true",
          "later launch: true",
          "later completion: true",
          "health: true",
          "later allocation: true",
          "action behind the work ran",
          "closed");

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
    System.out.println("future of its stream: " + failed(own));
    System.out.println("future of another stream: " + failed(other));
    System.out.println(
        "later launch: " + fails(() -> held.launch(StreamKernels.TRAP, 1, 1, KernelArgs.NONE)));
    System.out.println("later completion: " + failed(held.completion()));
    System.out.println("health: " + fails(held::requireHealthy));
    System.out.println("later allocation: " + fails(() -> device.allocate(2 << 20)));
    if (ran.await(60, TimeUnit.SECONDS)) {
      System.out.println("action behind the work ran");
    }
    large.close();
    gate.close();
    device.close();
    System.out.println("closed");
  }

  private static boolean fails(Runnable call) {
    try {
      call.run();
      return false;
    } catch (DeviceFailure e) {
      return CudaError.isSticky(e.status());
    }
  }

  private static boolean failed(CompletableFuture<?> future) throws Exception {
    try {
      future.get(60, TimeUnit.SECONDS);
      return false;
    } catch (java.util.concurrent.ExecutionException e) {
      FluxCclException failure = FluxCclException.from(e);
      return failure instanceof DeviceFailure
          && CudaError.isSticky(((DeviceFailure) failure).status());
    }
  }
}
