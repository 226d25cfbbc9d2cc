// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.agrona.concurrent.IdleStrategy;

/**
 * Time that the first trigger after a pause waits for an idle proxy, by idle strategy, on the host
 * device; and the CPU time of the idle proxy.
 */
final class ProxyWake {
  private static final int[] PAUSES_MILLIS = {1, 10, 100, 500};
  private static final long IDLE_SECONDS = 3;
  private static final long BUDGET_MILLIS = 4_000;
  private static final int MOST = 300;
  private static final double MICROS = 1e3;

  static final Bench BENCH =
      Bench.onHost(
          "proxy-wake",
          "the first trigger after a pause, by idle strategy; processor time of the idle proxy",
          (rows, arguments) -> {
            measure(rows, "yielding", ProxyOptions::yielding);
            measure(rows, "spinning", ProxyOptions::spinning);
            measure(rows, "busySpinning", ProxyOptions::busySpinning);
          });

  private static void measure(Bench.Rows rows, String name, Supplier<IdleStrategy> idle)
      throws InterruptedException {
    AtomicLong proxyThread = new AtomicLong();
    try (HostDevice device = HostDevice.create();
        AbortFlag abort = new AbortFlag(device)) {
      Fifo fifo = new Fifo(device);
      ProxyOptions options =
          ProxyOptions.builder()
              .idleStrategy(idle)
              .threadInit(() -> proxyThread.set(Thread.currentThread().getId()))
              .build();
      try (Proxy proxy =
          new Proxy(fifo, (first, second, position) -> ProxyHandlerResult.CONTINUE, options)) {
        proxy.start();
        FifoDeviceHandle producer = fifo.deviceHandle(abort);
        for (int i = 0; i < 200_000; i++) {
          producer.sync(producer.push(i, 0));
        }
        for (int pause : PAUSES_MILLIS) {
          double[] micros = afterPauses(producer, pause);
          rows.percentiles(name + " after " + pause + " ms", micros, "us", 0.5, 0.9, 1);
        }
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long before = threads.getThreadCpuTime(proxyThread.get());
        TimeUnit.SECONDS.sleep(IDLE_SECONDS);
        double used = (threads.getThreadCpuTime(proxyThread.get()) - before) / 1e7;
        rows.add(name + ", idle", used / IDLE_SECONDS, "% of a core");
      }
    }
  }

  /** Microseconds of each first push and sync, sorted. */
  private static double[] afterPauses(FifoDeviceHandle producer, int pauseMillis) {
    int count = (int) Math.min(MOST, BUDGET_MILLIS / pauseMillis);
    double[] micros = new double[count];
    for (int i = 0; i < count; i++) {
      // Not a whole number of naps.
      long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pauseMillis) + i * 7919L;
      while (System.nanoTime() < until) {
        LockSupport.parkNanos(Math.max(1, until - System.nanoTime()));
      }
      long start = System.nanoTime();
      long position = producer.push(i, 0);
      producer.sync(position);
      micros[i] = (System.nanoTime() - start) / MICROS;
    }
    return micros;
  }
}
