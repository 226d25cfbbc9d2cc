// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Text;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.net.NetRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * ETHERNET between two ranks of this JVM over the loopback, one connection. Measures 8-byte writes
 * per second, GB/s of writes of 64 KiB to 64 MiB, and the round trip of an 8-byte write and its
 * flush.
 *
 * <p>Arguments: {@code net} for NET over the built-in TCP network; {@code staged} to stage memory
 * as for a GPU; {@code checksums}; {@code gpus} for memory on GPUs 0 and 1, or on the only one.
 */
final class EthernetLoopback {
  private static final Duration LIMIT = Duration.ofSeconds(30);
  private static final long BYTES_EACH_SIZE = 1L << 30;
  private static final int ROUND_TRIPS = 5_000;
  private static final int MOST = 64 << 20;
  private static final int SHORT_WRITES = 1_000_000;

  static final Bench BENCH =
      Bench.onHost(
          "ethernet",
          "ETHERNET over the loopback: short and long writes, write and flush, an idle link",
          EthernetLoopback::run);

  private final Bench.Rows rows;
  private final Connection link;
  private final RegisteredMemory target;
  private final RegisteredMemory source;

  private EthernetLoopback(ConnectedRanks ranks, Bench.Rows rows) throws Exception {
    this.rows = rows;
    this.link = ranks.connect(0).get(0);
    this.source = ranks.memory(0, MOST);
    this.target = ranks.seenByPeer(ranks.memory(1, MOST));
  }

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    boolean gpus = arguments.contains("gpus");
    NetRanks opened =
        arguments.contains("net")
            ? NetRanks.overTcp(gpus)
            : gpus ? NetRanks.ethernetOnGpus() : NetRanks.ethernet(arguments.contains("staged"));
    try (ConnectedRanks ranks = opened.withChecksums(arguments.contains("checksums"))) {
      new EthernetLoopback(ranks, rows).measure();
    }
  }

  private void measure() throws Exception {
    writes(8, SHORT_WRITES, 4096);
    for (int round = 0; round < 2; round++) {
      Samples.Cost cost = writes(8, SHORT_WRITES, 4096);
      String note = Text.of("%.2f CPU us for each", cost.cpuMicros());
      rows.add("write of 8 B", 1 / cost.micros(), "million/s", "", note);
    }
    for (int round = 0; round < 2; round++) {
      for (int size = 64 << 10; size <= MOST; size *= 4) {
        bandwidth(size, round > 0);
      }
    }
    bandwidth(MOST, true);
    for (int second = 0; second < 4; second++) {
      long before = Samples.cpuNanos();
      Thread.sleep(1000);
      rows.add("idle CPU in second " + second, (Samples.cpuNanos() - before) / 1e7, "%");
    }
    for (int round = 0; round < 2; round++) {
      roundTrips("write of 8 B and flush, ticket polled", this::pollTicket);
      roundTrips("write of 8 B and flush, future awaited", this::flush);
    }
  }

  private void flush() throws Exception {
    link.flush(LIMIT).get(LIMIT.toSeconds(), TimeUnit.SECONDS);
  }

  private void pollTicket() {
    long ticket = link.beginFlush();
    while (link.flushedTicket() < ticket && link.failure() == null) {
      Thread.onSpinWait();
    }
  }

  /** Posts writes, with a flush after a number of them, which bounds the posted writes. */
  private Samples.Cost writes(int size, int count, int ahead) throws Exception {
    return Samples.cost(
        count,
        () -> {
          for (int i = 1; i <= count; i++) {
            link.write(target, 0, source, 0, size);
            if (i % ahead == 0 || i == count) {
              flush();
            }
          }
        });
  }

  private void bandwidth(int size, boolean measured) throws Exception {
    Samples.Cost cost = writes(size, (int) (BYTES_EACH_SIZE / size), 256);
    if (measured) {
      String note = Text.of("%.2f CPU seconds for each GB", cost.cpuMicros() * 1e3 / size);
      rows.add("write of " + (size >> 10) + " KiB", size / cost.micros() / 1e3, "GB/s", "", note);
    }
  }

  private void roundTrips(String what, Samples.Action flush) throws Exception {
    double[] micros =
        Samples.micros(
            ROUND_TRIPS,
            ROUND_TRIPS,
            () -> {
              link.write(target, 0, source, 0, 8);
              flush.run();
            });
    rows.percentiles(what, micros, "us", 0.5, 0.99);
  }
}
