// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.ib.IbRanks;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * IB0 between two ranks of this JVM, as perftest measures it. Bandwidth: MB/s (2^20 bytes) of 64
 * KiB writes, up to 128 posted. Latency: half the time of an 8-byte ping-pong of signals, which are
 * polled in memory.
 *
 * <p>Arguments: number of writes, number of ping-pongs.
 */
public final class IbLoopback {
  private static final int SIZE = 64 << 10;
  private static final int WINDOW = 128;

  private IbLoopback() {}

  /** Runs it. */
  public static void main(String[] arguments) throws Exception {
    int writes = Integer.parseInt(arguments[0]);
    int pingPongs = Integer.parseInt(arguments[1]);
    try (IbRanks ranks = new IbRanks()) {
      List<Connection> ends = ranks.connect(0);
      RegisteredMemory[] own = {ranks.memory(0, SIZE), ranks.memory(1, SIZE)};
      RegisteredMemory[] seen = {ranks.seenByPeer(own[0]), ranks.seenByPeer(own[1])};
      bandwidth(ends.get(0), seen[1], own[0], Math.max(WINDOW, writes / 4));
      System.out.printf(
          "write 64 KiB       %8.2f MB/s%n", bandwidth(ends.get(0), seen[1], own[0], writes));
      latency(ends, own, seen, pingPongs / 4);
      long[] nanos = latency(ends, own, seen, pingPongs);
      Arrays.sort(nanos);
      System.out.printf(
          "write 8 B          %8.2f us p50 %8.2f us mean %8.2f us p99%n",
          nanos[nanos.length / 2] / 2e3,
          Arrays.stream(nanos).average().orElse(0) / 2e3,
          nanos[nanos.length * 99 / 100] / 2e3);
    }
  }

  /** Half a window is always posted while the other is flushed. */
  private static double bandwidth(
      Connection link, RegisteredMemory target, RegisteredMemory source, int count)
      throws Exception {
    long start = System.nanoTime();
    long before = 0;
    for (int i = 1; i <= count; i++) {
      link.write(target, 0, source, 0, SIZE);
      if (i % (WINDOW / 2) == 0) {
        long ticket = link.beginFlush();
        while (link.flushedTicket() < before && link.failure() == null) {
          Thread.sleep(0, 200_000);
        }
        before = ticket;
      }
    }
    link.flush(IbRanks.LIMIT).get(IbRanks.LIMIT.toSeconds(), TimeUnit.SECONDS);
    return (double) count * SIZE / (1 << 20) / ((System.nanoTime() - start) / 1e9);
  }

  private static long[] latency(
      List<Connection> ends, RegisteredMemory[] own, RegisteredMemory[] seen, int count) {
    long[] nanos = new long[count];
    AtomicLong[] counters = {new AtomicLong(), new AtomicLong()};
    HostMemory.putLongRelease(own[0].address(), 0);
    HostMemory.putLongRelease(own[1].address(), 0);
    for (int i = 0; i < count; i++) {
      long start = System.nanoTime();
      for (int rank = 0; rank < 2; rank++) {
        ends.get(rank).updateAndSync(seen[1 - rank], 0, counters[rank], i + 1);
        // The peer sees it; being one thread, both sides never poll at once.
        while (HostMemory.getLongAcquire(own[1 - rank].address()) <= i
            && ends.get(rank).failure() == null) {
          Thread.onSpinWait();
        }
      }
      nanos[i] = System.nanoTime() - start;
    }
    return nanos;
  }
}
