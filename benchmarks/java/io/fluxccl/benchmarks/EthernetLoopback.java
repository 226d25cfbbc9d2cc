// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.net.NetRanks;
import java.time.Duration;
import java.util.Arrays;
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
public final class EthernetLoopback {
  private static final Duration LIMIT = Duration.ofSeconds(30);
  private static final long BYTES_EACH_SIZE = 1L << 30;
  private static final int ROUND_TRIPS = 5_000;
  private static final int SHORT_WRITES = 1_000_000;

  private EthernetLoopback() {}

  /** Runs it. */
  public static void main(String[] arguments) throws Exception {
    boolean staged = List.of(arguments).contains("staged");
    boolean gpus = List.of(arguments).contains("gpus");
    boolean net = List.of(arguments).contains("net");
    NetRanks opened =
        net ? NetRanks.overTcp(gpus) : gpus ? NetRanks.ethernetOnGpus() : NetRanks.ethernet(staged);
    try (ConnectedRanks ranks = opened.withChecksums(List.of(arguments).contains("checksums"))) {
      Connection link = ranks.connect(0).get(0);
      RegisteredMemory source = ranks.memory(0, 64 << 20);
      RegisteredMemory target = ranks.seenByPeer(ranks.memory(1, 64 << 20));
      System.out.printf(
          "%s loopback%s%n",
          net ? "NET over TCP" : "ETHERNET", gpus ? ", memory of GPUs" : staged ? ", staged" : "");
      for (int round = 0; round < 3; round++) {
        shortWrites(link, target, source, round > 0);
      }
      for (int round = 0; round < 2; round++) {
        for (long size = 64 << 10; size <= 64 << 20; size *= 4) {
          bandwidth(link, target, source, size, round > 0);
        }
      }
      bandwidth(link, target, source, 64 << 20, true);
      for (int second = 0; second < 4; second++) {
        long before = cpu();
        Thread.sleep(1000);
        System.out.printf("idle CPU in second %d: %.1f %%%n", second, (cpu() - before) / 1e7);
      }
      for (int round = 0; round < 3; round++) {
        ticketRoundTrips(link, target, source, round > 0);
        futureRoundTrips(link, target, source, round > 0);
      }
    }
  }

  /** Posts a million writes, with a flush every 4096 to bound what is posted ahead. */
  private static void shortWrites(
      Connection link, RegisteredMemory target, RegisteredMemory source, boolean print)
      throws Exception {
    long cpuStart = cpu();
    long start = System.nanoTime();
    for (int i = 1; i <= SHORT_WRITES; i++) {
      link.write(target, 0, source, 0, 8);
      if ((i & 4095) == 0 || i == SHORT_WRITES) {
        link.flush(LIMIT).get(LIMIT.toSeconds(), TimeUnit.SECONDS);
      }
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    if (print) {
      System.out.printf(
          "write        8 B    %6.2f million/s  %5.2f CPU us for each%n",
          SHORT_WRITES / seconds / 1e6, (cpu() - cpuStart) / 1e3 / SHORT_WRITES);
    }
  }

  /** Posts 1 GiB, with a flush every 256 writes to bound what is posted ahead. */
  private static void bandwidth(
      Connection link, RegisteredMemory target, RegisteredMemory source, long size, boolean print)
      throws Exception {
    int count = (int) (BYTES_EACH_SIZE / size);
    long cpuStart = cpu();
    long start = System.nanoTime();
    for (int i = 0; i < count; i++) {
      link.write(target, 0, source, 0, size);
      if ((i & 255) == 255) {
        link.flush(LIMIT).get(LIMIT.toSeconds(), TimeUnit.SECONDS);
      }
    }
    link.flush(LIMIT).get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    double seconds = (System.nanoTime() - start) / 1e9;
    double cpu = (cpu() - cpuStart) / 1e9;
    if (print) {
      System.out.printf(
          "write %8d KiB  %6.2f GB/s  %5.2f CPU seconds for each GB%n",
          size >> 10, count * size / seconds / 1e9, cpu / (count * size / 1e9));
    }
  }

  private static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private static void ticketRoundTrips(
      Connection link, RegisteredMemory target, RegisteredMemory source, boolean print) {
    long[] nanos = new long[ROUND_TRIPS];
    for (int i = 0; i < ROUND_TRIPS; i++) {
      long start = System.nanoTime();
      link.write(target, 0, source, 0, 8);
      long ticket = link.beginFlush();
      while (link.flushedTicket() < ticket && link.failure() == null) {
        Thread.onSpinWait();
      }
      nanos[i] = System.nanoTime() - start;
    }
    report("write 8 B + flush, ticket polled ", nanos, print);
  }

  private static void futureRoundTrips(
      Connection link, RegisteredMemory target, RegisteredMemory source, boolean print)
      throws Exception {
    long[] nanos = new long[ROUND_TRIPS];
    for (int i = 0; i < ROUND_TRIPS; i++) {
      long start = System.nanoTime();
      link.write(target, 0, source, 0, 8);
      link.flush(LIMIT).get(LIMIT.toSeconds(), TimeUnit.SECONDS);
      nanos[i] = System.nanoTime() - start;
    }
    report("write 8 B + flush, future awaited", nanos, print);
  }

  private static void report(String what, long[] nanos, boolean print) {
    if (print) {
      Arrays.sort(nanos);
      System.out.printf(
          "%s  p50 %5.1f us  p99 %5.1f us%n",
          what, nanos[nanos.length / 2] / 1e3, nanos[nanos.length * 99 / 100] / 1e3);
    }
  }
}
