// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.channel.SmChannel;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.gpu.GpuLink;
import io.fluxccl.gpu.GpuRank;
import io.fluxccl.gpu.GpuRanks;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.transport.Transport;

/** 1 GiB from one GPU to another: what channels reach of what the copy engine and stores do. */
final class BandwidthFigures implements FigureSection {
  private static final long BYTES = 1L << 30;
  private static final int TIMES = 8;
  private static final int REPETITIONS = 3;
  private static final int[] BLOCKS = {16, 32, 64, 128, 132, 264, 528};
  private static final int[] THREADS = {256, 512, 1024};
  private static final double ENOUGH = 95;

  @Override
  public String name() {
    return "bandwidth";
  }

  @Override
  public String description() {
    return "1 GiB put by the proxy and by SMs, against a raw copy and plain stores";
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
          TestKernels.prepare(rank.device(), "sm_channel", "figures");
          GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, BYTES);
          GpuLink.Proxied proxied = link.proxied().start();
          SmChannel channel = link.smChannel(link.buffer);
          rank.barrier();
          if (rank.rank() == 0) {
            measure(figures, rank, link, proxied, channel);
          }
          rank.barrier();
        });
  }

  private static void measure(
      Figures figures, GpuRank rank, GpuLink link, GpuLink.Proxied proxied, SmChannel channel)
      throws Exception {
    CudaStream stream = (CudaStream) rank.stream();
    double raw =
        best(
            () -> {
              for (int i = 0; i < TIMES; i++) {
                stream.copyAsync(link.remote.address(), link.buffer.address(), BYTES);
              }
              rank.await();
            });
    figures.add("raw cuMemcpyDtoDAsync to the peer", raw, "GB/s");
    Kernel puts = TestKernels.of("figures", "proxyPuts");
    double proxy = best(() -> rank.run(puts, 1, 1, proxied.channel(), BYTES, TIMES));
    figures.add("ProxyChannel put", proxy, "GB/s");
    figures.addAtLeast("ProxyChannel put, share of the raw copy", 100 * proxy / raw, "%", ENOUGH);
    Best plain = new Best();
    Best put = new Best();
    for (int blocks : BLOCKS) {
      for (int threads : THREADS) {
        plain.see(
            blocks,
            threads,
            best(
                () -> {
                  for (int i = 0; i < TIMES; i++) {
                    rank.launch(
                        TestKernels.of("sm_channel", "plainStore"),
                        blocks,
                        threads,
                        channel,
                        BYTES);
                  }
                  rank.await();
                }));
        put.see(
            blocks,
            threads,
            best(
                () -> {
                  for (int i = 0; i < TIMES; i++) {
                    rank.launch(
                        TestKernels.of("sm_channel", "smPut"), blocks, threads, channel, BYTES);
                  }
                  rank.await();
                }));
      }
    }
    figures.add("plain stores, best at " + plain.where, plain.rate, "GB/s");
    figures.add("SmChannel put, best at " + put.where, put.rate, "GB/s");
    figures.addAtLeast(
        "SmChannel put, share of plain stores", 100 * put.rate / plain.rate, "%", ENOUGH);
  }

  /** The best of a sweep. */
  private static final class Best {
    double rate;
    String where;

    void see(int blocks, int threads, double candidate) {
      if (candidate > rate) {
        rate = candidate;
        where = blocks + " x " + threads;
      }
    }
  }

  private interface Transfer {
    void run() throws Exception;
  }

  /** GB/s, the best of some. */
  private static double best(Transfer transfer) throws Exception {
    double best = 0;
    for (int i = 0; i <= REPETITIONS; i++) {
      long start = System.nanoTime();
      transfer.run();
      // The first is for warming up.
      if (i > 0) {
        best = Math.max(best, (double) BYTES * TIMES / (System.nanoTime() - start));
      }
    }
    return best;
  }
}
