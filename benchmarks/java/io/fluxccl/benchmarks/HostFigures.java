// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Aborted;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.gpu.GpuLink;
import io.fluxccl.gpu.GpuRanks;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Transport;
import java.util.concurrent.CompletableFuture;
import jcuda.driver.JCudaDriver;

/**
 * Latencies of a GPU on the host: from a launch to its completion, and from an abort to the
 * kernel's end.
 */
final class HostFigures implements FigureSection {
  private static final int LAUNCHES = 20_000;
  private static final int ABORTS = 10;
  private static final double MICROS = 1e3;
  private static final double MILLIS = 1e6;

  @Override
  public String name() {
    return "host";
  }

  @Override
  public String description() {
    return "launch to completion, abort to the end of a kernel that waits";
  }

  @Override
  public int gpus() {
    return 1;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    Kernel nothing = TestKernels.of("figures", "nothing");
    GpuRanks.run(
        1,
        1,
        rank -> {
          rank.run(nothing, 1, 1);
          CudaStream stream = (CudaStream) rank.stream();
          rank.device().bindThread();
          int[] launched = new int[1];
          tell(
              figures,
              "launch alone",
              times(
                  () -> rank.launch(nothing, 1, 1),
                  () -> {
                    // A stream that is full makes the launch wait for the GPU.
                    if (++launched[0] % 256 == 0) {
                      stream.completion().join();
                    }
                  }));
          tell(
              figures,
              "launch and cuStreamSynchronize",
              times(
                  () -> {
                    rank.launch(nothing, 1, 1);
                    JCudaDriver.cuStreamSynchronize(stream.handle());
                  }));
          tell(
              figures,
              "launch to completion(), spinning on isDone()",
              times(
                  () -> {
                    rank.launch(nothing, 1, 1);
                    CompletableFuture<Void> done = stream.completion();
                    while (!done.isDone()) {
                      Thread.onSpinWait();
                    }
                  }));
          tell(
              figures,
              "launch to completion().join()",
              times(
                  () -> {
                    rank.launch(nothing, 1, 1);
                    stream.completion().join();
                  }));
        });
    aborts(figures);
  }

  private static void tell(Figures figures, String what, double[] micros) {
    figures.add(what + ", median", Figures.percentile(micros, 0.5), "us");
    figures.add(what + ", p99.9", Figures.percentile(micros, 0.999), "us");
  }

  private static double[] times(Runnable action) {
    return times(action, () -> {});
  }

  /** Returns the microseconds of each action; the code run after it is not timed. */
  private static double[] times(Runnable action, Runnable behind) {
    double[] micros = new double[LAUNCHES];
    for (int i = -LAUNCHES / 4; i < LAUNCHES; i++) {
      long start = System.nanoTime();
      action.run();
      long end = System.nanoTime();
      if (i >= 0) {
        micros[i] = (end - start) / MICROS;
      }
      behind.run();
    }
    return micros;
  }

  private static void aborts(Figures figures) throws Exception {
    Kernel wait = TestKernels.of("abort", "abortSignal");
    double[] millis = new double[ABORTS];
    for (int i = 0; i < ABORTS; i++) {
      int index = i;
      GpuRanks.run(
          2,
          1,
          rank -> {
            TestKernels.prepare(rank.device(), "abort");
            GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 64);
            SmDevice2DeviceSemaphore semaphore = link.semaphore();
            DeviceBuffer result = rank.allocate(Integer.BYTES);
            PinnedBuffer started = rank.own(rank.device().allocatePinned(64));
            rank.barrier();
            rank.stream().writeValue(started, 0, 1);
            rank.launch(wait, 1, 1, semaphore, result);
            while (started.buffer().getLongVolatile(0) == 0) {
              Thread.onSpinWait();
            }
            rank.barrier();
            if (rank.rank() == 0) {
              long start = System.nanoTime();
              rank.communicator().abort(new Aborted(0, "measured"));
              rank.await();
              millis[index] = (System.nanoTime() - start) / MILLIS;
            } else {
              rank.await();
            }
          });
    }
    figures.add(
        "abort to the end of a waiting kernel, median", Figures.percentile(millis, 0.5), "ms");
    figures.addAtMost("abort to the end of a waiting kernel, worst", millis[ABORTS - 1], "ms", 100);
  }
}
