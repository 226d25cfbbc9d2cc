// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Aborted;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.gpu.GpuLink;
import io.fluxccl.gpu.GpuRank;
import io.fluxccl.gpu.GpuRanks;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.Transport;
import java.util.concurrent.CompletableFuture;
import jcuda.driver.JCudaDriver;

/** Times on the host: from a launch to its completion, and from an abort to the kernel's end. */
final class HostBench {
  private static final int LAUNCHES = 20_000;
  private static final int ABORTS = 10;
  private static final double MICROS = 1e3;
  private static final double MILLIS = 1e6;

  static final Bench BENCH =
      Bench.onGpus(
          1,
          "host",
          "launch to completion, abort to the end of a kernel that waits",
          (rows, arguments) -> measure(rows));

  private static void measure(Bench.Rows rows) throws Exception {
    GpuRanks.run(
        1,
        1,
        rank -> {
          rank.run(TestKernels.of("figures", "nothing"), 1, 1);
          CudaStream stream = (CudaStream) rank.stream();
          rank.device().bindThread();
          add(rows, rank, "launch alone", () -> {});
          add(
              rows,
              rank,
              "launch and cuStreamSynchronize",
              () -> JCudaDriver.cuStreamSynchronize(stream.handle()));
          add(
              rows,
              rank,
              "launch to completion(), spinning on isDone()",
              () -> {
                CompletableFuture<Void> done = stream.completion();
                while (!done.isDone()) {
                  Thread.onSpinWait();
                }
              });
          add(rows, rank, "launch to completion().join()", () -> stream.completion().join());
        });
    aborts(rows);
  }

  /** Measures a launch and what follows it. */
  private static void add(Bench.Rows rows, GpuRank rank, String what, Samples.Action rest)
      throws Exception {
    int[] launched = new int[1];
    double[] micros =
        Samples.each(
            LAUNCHES / 4,
            LAUNCHES,
            () -> {
              // A stream that is full makes the launch wait for the GPU.
              if (++launched[0] % 256 == 0) {
                rank.await();
              }
              long start = System.nanoTime();
              rank.launch(TestKernels.of("figures", "nothing"), 1, 1);
              rest.run();
              return (System.nanoTime() - start) / MICROS;
            });
    rows.percentiles(what, micros, "us", 0.5, 0.999);
  }

  private static void aborts(Bench.Rows rows) throws Exception {
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
    rows.add("abort to the end of a waiting kernel, p50", Samples.median(millis), "ms");
    double worst = Samples.percentile(millis, 1);
    rows.add("abort to the end of a waiting kernel, worst", worst, "ms", "<= 100");
  }
}
