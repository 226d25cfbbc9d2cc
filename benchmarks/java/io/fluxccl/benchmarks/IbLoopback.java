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
final class IbLoopback {
  private static final int SIZE = 64 << 10;
  private static final int WINDOW = 128;

  private IbLoopback() {}

  static final Bench BENCH =
      Bench.onHost("ib", "IB0 on one machine: writes of 64 KiB, signals", IbLoopback::run);

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    int writes = Integer.parseInt(arguments.get(0));
    int pingPongs = Integer.parseInt(arguments.get(1));
    try (IbRanks ranks = new IbRanks()) {
      List<Connection> ends = ranks.connect(0);
      RegisteredMemory[] own = {ranks.memory(0, SIZE), ranks.memory(1, SIZE)};
      RegisteredMemory[] seen = {ranks.seenByPeer(own[0]), ranks.seenByPeer(own[1])};
      bandwidth(ends.get(0), seen[1], own[0], Math.max(WINDOW, writes / 4));
      rows.add("write of 64 KiB", bandwidth(ends.get(0), seen[1], own[0], writes), "MB/s");
      double[] micros = latency(ends, own, seen, pingPongs);
      rows.percentiles("8-byte signal", micros, "us", 0.5, 0.99);
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

  /** Returns the microseconds of each signal, one way. */
  private static double[] latency(
      List<Connection> ends, RegisteredMemory[] own, RegisteredMemory[] seen, int count)
      throws Exception {
    AtomicLong[] counters = {new AtomicLong(), new AtomicLong()};
    long[] number = new long[1];
    double[] micros =
        Samples.micros(
            count / 4,
            count,
            () -> {
              number[0]++;
              for (int rank = 0; rank < 2; rank++) {
                ends.get(rank).updateAndSync(seen[1 - rank], 0, counters[rank], number[0]);
                // The peer sees it; being one thread, both sides never poll at once.
                while (HostMemory.getLongAcquire(own[1 - rank].address()) < number[0]
                    && ends.get(rank).failure() == null) {
                  Thread.onSpinWait();
                }
              }
            });
    return Arrays.stream(micros).map(both -> both / 2).toArray();
  }
}
