// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.DirectMemoryDevice;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.YieldingIdleStrategy;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Threads;
import org.openjdk.jmh.annotations.Warmup;

/**
 * Time of a trigger from push to handler, on one thread and between threads. One operation is one
 * trigger. Run with {@code -prof gc}: operations must not allocate.
 */
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.SECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class ProxyLoopBenchmark {
  private static final int BATCH = 64;

  /** A ring, its producer's end, and a proxy whose handler adds the sizes up. */
  public abstract static class Ring {
    final DirectMemoryDevice device = new DirectMemoryDevice();
    AbortFlag abort;
    Proxy proxy;
    FifoDeviceHandle producer;
    long bytes;

    void open() {
      abort = new AbortFlag(device);
      Fifo fifo = new Fifo(device);
      producer = fifo.deviceHandle(abort);
      proxy =
          new Proxy(
              fifo,
              (first, second, position) -> {
                bytes += ChannelTrigger.size(first);
                return ProxyHandlerResult.CONTINUE;
              },
              ProxyOptions.builder().idleStrategy(YieldingIdleStrategy::new).build());
    }

    void shut() {
      proxy.close();
      abort.close();
    }

    long push(long offset) {
      return producer.push(
          ChannelTrigger.first(100, offset),
          ChannelTrigger.second(0, 1, 2, ChannelTrigger.DATA, 7));
    }
  }

  /** Stepped by hand. */
  @State(Scope.Thread)
  public static class Stepped extends Ring {
    @Setup
    public void setUp() {
      open();
    }

    @TearDown
    public void tearDown() {
      shut();
    }
  }

  /** On its own thread. */
  @State(Scope.Benchmark)
  public static class Running extends Ring {
    @Setup
    public void setUp() {
      open();
      proxy.start();
    }

    @TearDown
    public void tearDown() {
      shut();
    }
  }

  /** One push, one duty cycle. */
  @Benchmark
  public int pushAndDoWork(Stepped ring) {
    ring.push(0);
    return ring.proxy.doWork();
  }

  /** A batch of pushes, one duty cycle. */
  @Benchmark
  @OperationsPerInvocation(BATCH)
  public int pushBatchAndDoWork(Stepped ring) {
    for (int i = 0; i < BATCH; i++) {
      ring.push(i);
    }
    return ring.proxy.doWork();
  }

  /** One producer thread, the proxy on another; as fast as the ring lets it. */
  @Benchmark
  @Threads(1)
  public long pushToRunningProxy(Running ring) {
    return ring.push(0);
  }

  /** Two producer threads, the proxy on a third. */
  @Benchmark
  @Threads(2)
  public long pushToRunningProxyFromTwo(Running ring) {
    return ring.push(0);
  }

  /** Push and wait until it has been handled. */
  @Benchmark
  @Threads(1)
  public boolean pushAndSync(Running ring) {
    return ring.producer.sync(ring.push(0));
  }
}
