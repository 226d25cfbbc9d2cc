// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.agrona.concurrent.IdleStrategy;

/** The ring between a kernel and the proxy's thread: rate, latency, garbage. */
final class FifoBench {
  private static final String PUSH = "fifoPush";
  private static final String RELAXED = "fifoRelaxedPush";
  private static final int REPETITIONS = 5;

  private static final int LATENCIES = 100_000;
  private static final double MICROS = 1e3;
  private static final int BUSY_BYTES_PER_SECOND = 1_000_000_000;

  private final AtomicLong proxyThread = new AtomicLong();
  private DeviceStream stream;
  private DeviceBuffer gaveUp;
  private Fifo fifo;
  private Object handle;

  static final Bench BENCH =
      Bench.onGpus(
          1,
          "fifo",
          "triggers a second, push and sync, after pauses too, bytes allocated by the proxy's"
              + " thread",
          (rows, arguments) -> new FifoBench().measure(rows));

  private void measure(Bench.Rows rows) throws Exception {
    try (CudaDevice device = CudaDevice.open(0);
        DeviceStream producers = device.createStream("producers");
        AbortFlag abort = new AbortFlag(device)) {
      stream = producers;
      TestKernels.prepare(device, "fifo", "figures");
      gaveUp = device.allocate(Integer.BYTES);
      fifo = new Fifo(device, FifoDescriptor.DEFAULT_SIZE);
      handle = fifo.deviceHandle(abort);
      ProxyOptions options =
          ProxyOptions.builderFor(device)
              .threadInit(
                  () -> {
                    device.bindThread();
                    proxyThread.set(Thread.currentThread().getId());
                  })
              .build();
      long[] handled = new long[1];
      try (Proxy proxy =
          new Proxy(
              fifo,
              (first, second, position) -> {
                handled[0] += first;
                return ProxyHandlerResult.CONTINUE;
              },
              options)) {
        proxy.start();
        rates(rows);
        latencies(device, rows);
      }
      afterPauses(device, abort, rows, "yielding", ProxyOptions::yielding);
      afterPauses(device, abort, rows, "spinning", ProxyOptions::spinning);
      afterPauses(device, abort, rows, "busySpinning", ProxyOptions::busySpinning);
    }
  }

  /** Measures the wait of the first trigger after a pause, by idle strategy. */
  private void afterPauses(
      CudaDevice device,
      AbortFlag abort,
      Bench.Rows rows,
      String name,
      Supplier<IdleStrategy> idle) {
    fifo = new Fifo(device, FifoDescriptor.DEFAULT_SIZE);
    handle = fifo.deviceHandle(abort);
    ProxyOptions options =
        ProxyOptions.builder().threadInit(device::bindThread).idleStrategy(idle).build();
    try (Proxy proxy =
        new Proxy(fifo, (first, second, position) -> ProxyHandlerResult.CONTINUE, options)) {
      proxy.start();
      for (int millis : new int[] {1, 10, 100}) {
        double[] micros = latency(device, 300 / millis + 7, millis);
        String what = "push and sync after " + millis + " ms, proxy " + name;
        rows.percentiles(what, micros, "us", 0.5, 1);
      }
    }
  }

  private void rates(Bench.Rows rows) throws Exception {
    double one = rate(PUSH, 1, 1, 100_000);
    rows.add("push from 1 thread", one, "M/s", ">= 0.52");
    double blocks = rate(PUSH, 32, 1, 50_000);
    rows.add("push from 32 threads in 32 blocks", blocks, "M/s", ">= 9.9");
    double warps = rate(PUSH, 4, 32, 50_000);
    rows.add("push from 128 threads in 4 warps, a block each", warps, "M/s", ">= 28");
    rows.add("push from 128 threads in one block", rate(PUSH, 1, 128, 50_000), "M/s");
    rows.add("relaxed push from 1 thread", rate(RELAXED, 1, 1, 100_000), "M/s");
    rows.add("relaxed push from 32 threads in 32 blocks", rate(RELAXED, 32, 1, 50_000), "M/s");
    rows.add("relaxed push from 128 threads in 4 warps", rate(RELAXED, 4, 32, 50_000), "M/s");
    com.sun.management.ThreadMXBean threads =
        (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long before = threads.getThreadAllocatedBytes(proxyThread.get());
    int count = 50_000;
    push(PUSH, 4, 32, count);
    double bytes = threads.getThreadAllocatedBytes(proxyThread.get()) - before;
    // The measurement itself allocates a little.
    rows.add(
        "allocated by the proxy's thread for each trigger",
        bytes / (128.0 * count),
        "bytes",
        "<= 0.01");
  }

  /** Millions of triggers a second, the median. */
  private double rate(String kernel, int blocks, int threads, int count) throws Exception {
    double triggers = (double) blocks * threads * count;
    double[] micros =
        Samples.each(1, REPETITIONS, () -> push(kernel, blocks, threads, count) / MICROS);
    return triggers / Samples.median(micros);
  }

  /** Nanoseconds from the launch until all triggers are handled. */
  private long push(String kernel, int blocks, int threads, int count) {
    long goal = fifo.tail() + (long) blocks * threads * count;
    long start = System.nanoTime();
    stream.launch(
        TestKernels.of("fifo", kernel), blocks, threads, KernelArgs.of(handle, count, gaveUp));
    // Does not read the tail while threads push: a third reader would delay its writer.
    stream.completion().join();
    while (fifo.tail() < goal) {
      Thread.onSpinWait();
    }
    return System.nanoTime() - start;
  }

  private void latencies(CudaDevice device, Bench.Rows rows) throws InterruptedException {
    latency(device, LATENCIES, 0);
    double[] quiet = latency(device, LATENCIES, 0);
    rows.add("push and sync, p50", Samples.median(quiet), "us", "<= 3.6");
    rows.percentiles("push and sync", quiet, "us", 0.999, 1);
    Thread busy = new Thread(FifoBench::allocate, "allocating");
    busy.setDaemon(true);
    busy.start();
    latency(device, LATENCIES, 0);
    double[] noisy = latency(device, LATENCIES, 0);
    busy.interrupt();
    busy.join();
    String beside = "push and sync beside a thread that allocates 1 GB/s";
    rows.percentiles(beside, noisy, "us", 0.5, 0.999, 1);
  }

  /** Microseconds of each push and sync, sorted, each after a pause of {@code pauseMillis}. */
  private double[] latency(CudaDevice device, int count, int pauseMillis) {
    try (DeviceBuffer cycles = device.allocate((long) count * Integer.BYTES);
        PinnedBuffer total = device.allocatePinned(2 * Long.BYTES)) {
      stream.launch(
          TestKernels.of("figures", "pushSyncCycles"),
          1,
          1,
          KernelArgs.of(handle, count, pauseMillis * 1_000_000L, cycles, total));
      stream.completion().join();
      double nanos = total.buffer().getLong(0);
      double nanosPerCycle = nanos / total.buffer().getLong(Long.BYTES);
      ByteBuffer each =
          ByteBuffer.allocateDirect(count * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      cycles.download(0, each);
      double[] micros = new double[count];
      for (int i = 0; i < count; i++) {
        micros[i] = Integer.toUnsignedLong(each.getInt(i * Integer.BYTES)) * nanosPerCycle / MICROS;
      }
      return micros;
    }
  }

  private static volatile Object sink;

  private static void allocate() {
    int piece = 1 << 16;
    long start = System.nanoTime();
    long allocated = 0;
    while (!Thread.currentThread().isInterrupted()) {
      double due = (System.nanoTime() - start) * (BUSY_BYTES_PER_SECOND / 1e9);
      while (allocated < due) {
        sink = new byte[piece];
        allocated += piece;
      }
      java.util.concurrent.locks.LockSupport.parkNanos(50_000);
    }
  }
}
