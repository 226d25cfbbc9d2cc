// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.channel.SmChannel;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.gpu.GpuLink;
import io.fluxccl.gpu.GpuRank;
import io.fluxccl.gpu.GpuRanks;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.transport.Transport;
import java.util.function.IntFunction;
import java.util.stream.Stream;

/** Ping-pongs of 1 KiB between two GPUs of one process. */
final class ChannelBench {
  private static final long BYTES = 1024;
  private static final int ROUND_TRIPS = 10_000;
  private static final int REPETITIONS = 5;

  static final Bench BENCH =
      Bench.onGpus(
          2,
          "channels",
          "ping-pongs of 1 KiB: proxy channel, SM channel, LL8 and LL16 packets",
          (rows, arguments) -> measure(rows));

  private static void measure(Bench.Rows rows) throws Exception {
    GpuRanks.run(
        2,
        2,
        rank -> {
          TestKernels.prepare(rank.device(), "sm_channel", "proxy_channel");
          double proxied = proxied(rank, Transport.CUDA_IPC, ROUND_TRIPS);
          double stored = stored(rank, "smPutPingPong16", 16, false);
          double ll8 = stored(rank, "smPacketPingPongLl8", 4, true);
          double ll16 = stored(rank, "smPacketPingPongLl16", 8, true);
          double ethernet = proxied(rank, Transport.ETHERNET, ROUND_TRIPS / 10);
          if (rank.rank() == 0) {
            rows.add("ProxyChannel putWithSignal over CUDA_IPC, one way", proxied, "us", "<= 19");
            rows.add("SmChannel put and signal, one way", stored, "us", "<= 3.5");
            rows.add("SmChannel LL8 packets, one way", ll8, "us");
            rows.add("SmChannel LL16 packets, one way", ll16, "us");
            rows.add("ProxyChannel putWithSignal over ETHERNET, one way", ethernet, "us");
          }
        });
  }

  private static double proxied(GpuRank rank, Transport transport, int roundTrips)
      throws Exception {
    GpuLink link = GpuLink.over(rank, transport, 2 * BYTES);
    GpuLink.Proxied proxied = link.proxied().start();
    DeviceBuffer unused = rank.allocate(Integer.BYTES);
    Object[] arguments = {
      proxied.channel(), link.buffer(), rank.rank(), roundTrips, BYTES, BYTES, 0, 0, unused, unused
    };
    Kernel kernel = TestKernels.of("proxy_channel", "proxyPingPong");
    return median(rank, roundTrips, repetition -> () -> rank.run(kernel, 1, 32, arguments));
  }

  /** Measures an SM channel; the packets' number grows with each repetition. */
  private static double stored(GpuRank rank, String name, int bytesOfAThread, boolean packets)
      throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 2 * BYTES);
    SmChannel channel = link.smChannel(packets ? rank.allocate(2 * BYTES) : link.buffer());
    DeviceBuffer unused = rank.allocate(Integer.BYTES);
    Object[] first = {channel, rank.rank(), ROUND_TRIPS, BYTES, BYTES};
    Object[] last = {0, unused, unused};
    Kernel kernel = TestKernels.of("sm_channel", name);
    return median(
        rank,
        ROUND_TRIPS,
        repetition -> {
          Object[] number = packets ? new Object[] {1 + repetition * ROUND_TRIPS} : new Object[0];
          Object[] arguments = Stream.of(first, number, last).flatMap(Stream::of).toArray();
          return () -> rank.run(kernel, 1, (int) BYTES / bytesOfAThread, arguments);
        });
  }

  /** Returns microseconds one way, the median of some runs; both ranks take part. */
  private static double median(GpuRank rank, int roundTrips, IntFunction<Samples.Action> turns)
      throws Exception {
    int[] repetition = new int[1];
    double[] micros =
        Samples.each(
            1,
            REPETITIONS,
            () -> {
              rank.barrier();
              return Samples.cost(2L * roundTrips, turns.apply(repetition[0]++)).micros();
            });
    rank.barrier();
    return Samples.median(micros);
  }
}
