// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.channel.SmChannel;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.gpu.GpuLink;
import io.fluxccl.gpu.GpuRank;
import io.fluxccl.gpu.GpuRanks;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.transport.Transport;

/** Ping-pongs of 1 KiB between two GPUs of one process. */
final class ChannelFigures implements FigureSection {
  private static final long BYTES = 1024;
  private static final int ROUND_TRIPS = 10_000;
  private static final int REPETITIONS = 5;
  private static final double NANOS_PER_MICRO = 1e3;

  @Override
  public String name() {
    return "channels";
  }

  @Override
  public String description() {
    return "ping-pongs of 1 KiB: proxy channel, SM channel, LL8 and LL16 packets";
  }

  @Override
  public int gpus() {
    return 2;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    GpuRanks.run(
        2,
        2,
        rank -> {
          TestKernels.prepare(rank.device(), "sm_channel", "proxy_channel");
          double proxied = proxied(rank, Transport.CUDA_IPC, ROUND_TRIPS);
          double stored = stored(rank);
          double ll8 = packets(rank, "smPacketPingPongLl8");
          double ll16 = packets(rank, "smPacketPingPongLl16");
          double ethernet = proxied(rank, Transport.ETHERNET, ROUND_TRIPS / 10);
          if (rank.rank() == 0) {
            tell(figures, "ProxyChannel putWithSignal over CUDA_IPC", proxied, 19);
            tell(figures, "SmChannel put and signal", stored, 3.5);
            tell(figures, "SmChannel LL8 packets", ll8, 0);
            tell(figures, "SmChannel LL16 packets", ll16, 0);
            tell(figures, "ProxyChannel putWithSignal over ETHERNET", ethernet, 0);
          }
        });
  }

  /** An iteration is one message one way, as in the peers' ping-pongs. */
  private static void tell(Figures figures, String what, double roundTrip, double goal) {
    if (goal > 0) {
      figures.addAtMost(what + ", one way", roundTrip / 2, "us", goal);
    } else {
      figures.add(what + ", one way", roundTrip / 2, "us");
    }
  }

  private static double proxied(GpuRank rank, Transport transport, int roundTrips)
      throws Exception {
    GpuLink link = GpuLink.over(rank, transport, 2 * BYTES);
    GpuLink.Proxied proxied = link.proxied().start();
    DeviceBuffer unused = rank.allocate(Integer.BYTES);
    return median(
        rank,
        roundTrips,
        repetition ->
            rank.run(
                TestKernels.of("proxy_channel", "proxyPingPong"),
                1,
                32,
                proxied.channel(),
                link.buffer,
                rank.rank(),
                roundTrips,
                BYTES,
                BYTES,
                0,
                0,
                unused,
                unused));
  }

  private static double stored(GpuRank rank) throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 2 * BYTES);
    SmChannel channel = link.smChannel(link.buffer);
    DeviceBuffer unused = rank.allocate(Integer.BYTES);
    return median(
        rank,
        ROUND_TRIPS,
        repetition ->
            rank.run(
                TestKernels.of("sm_channel", "smPutPingPong16"),
                1,
                (int) BYTES / 16,
                channel,
                rank.rank(),
                ROUND_TRIPS,
                BYTES,
                BYTES,
                0,
                unused,
                unused));
  }

  private static double packets(GpuRank rank, String kernel) throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 2 * BYTES);
    SmChannel channel = link.smChannel(rank.allocate(2 * BYTES));
    DeviceBuffer unused = rank.allocate(Integer.BYTES);
    int threads = (int) BYTES / (kernel.endsWith("Ll8") ? 4 : 8);
    return median(
        rank,
        ROUND_TRIPS,
        repetition ->
            rank.run(
                TestKernels.of("sm_channel", kernel),
                1,
                threads,
                channel,
                rank.rank(),
                ROUND_TRIPS,
                BYTES,
                BYTES,
                1 + repetition * ROUND_TRIPS,
                0,
                unused,
                unused));
  }

  private interface Turns {
    void play(int repetition) throws Exception;
  }

  /** Microseconds a round trip, the median of some; both ranks take part. */
  private static double median(GpuRank rank, int roundTrips, Turns turns) throws Exception {
    double[] micros = new double[REPETITIONS];
    for (int repetition = -1; repetition < REPETITIONS; repetition++) {
      rank.barrier();
      long start = System.nanoTime();
      turns.play(repetition + 1);
      if (repetition >= 0) {
        micros[repetition] = (System.nanoTime() - start) / NANOS_PER_MICRO / roundTrips;
      }
    }
    rank.barrier();
    return Figures.percentile(micros, 0.5);
  }
}
