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
final class BandwidthBench {
  private static final long BYTES = 1L << 30;
  private static final int TIMES = 8;
  private static final int REPETITIONS = 3;
  private static final int[] BLOCKS = {16, 32, 64, 128, 132, 264, 528};
  private static final int[] THREADS = {256, 512, 1024};
  private static final String ENOUGH = ">= 0.95";

  static final Bench BENCH =
      Bench.onGpus(
          2,
          "bandwidth",
          "1 GiB put by the proxy and by SMs, against a raw copy and plain stores",
          (rows, arguments) -> measure(rows));

  private static void measure(Bench.Rows rows) throws Exception {
    GpuRanks.run(
        2,
        2,
        rank -> {
          TestKernels.prepare(rank.device(), "sm_channel", "figures");
          GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, BYTES);
          GpuLink.Proxied proxied = link.proxied().start();
          SmChannel channel = link.smChannel(link.buffer());
          rank.barrier();
          if (rank.rank() == 0) {
            measure(rows, rank, link, proxied, channel);
          }
          rank.barrier();
        });
  }

  private static void measure(
      Bench.Rows rows, GpuRank rank, GpuLink link, GpuLink.Proxied proxied, SmChannel channel)
      throws Exception {
    CudaStream stream = (CudaStream) rank.stream();
    double raw =
        best(
            () -> {
              for (int i = 0; i < TIMES; i++) {
                stream.copyAsync(link.remote().address(), link.buffer().address(), BYTES);
              }
              rank.await();
            });
    Kernel puts = TestKernels.of("figures", "proxyPuts");
    double proxy = best(() -> rank.run(puts, 1, 1, proxied.channel(), BYTES, TIMES));
    rows.compare("ProxyChannel put", proxy, raw, "GB/s", "raw cuMemcpyDtoDAsync", ENOUGH);
    Best plain = new Best();
    Best put = new Best();
    for (int blocks : BLOCKS) {
      for (int threads : THREADS) {
        plain.add(blocks, threads, launches(rank, "plainStore", blocks, threads, channel));
        put.add(blocks, threads, launches(rank, "smPut", blocks, threads, channel));
      }
    }
    String stores = "plain stores, best at " + plain.where + ", ours at " + put.where;
    rows.compare("SmChannel put", put.rate, plain.rate, "GB/s", stores, ENOUGH);
  }

  private static double launches(
      GpuRank rank, String kernel, int blocks, int threads, SmChannel channel) throws Exception {
    return best(
        () -> {
          for (int i = 0; i < TIMES; i++) {
            rank.launch(TestKernels.of("sm_channel", kernel), blocks, threads, channel, BYTES);
          }
          rank.await();
        });
  }

  /** The best of a sweep. */
  private static final class Best {
    double rate;
    String where;

    void add(int blocks, int threads, double candidate) {
      if (candidate > rate) {
        rate = candidate;
        where = blocks + " x " + threads;
      }
    }
  }

  /** Returns GB/s, the best of several transfers after one warm-up transfer. */
  private static double best(Samples.Action transfers) throws Exception {
    double[] micros = Samples.micros(1, REPETITIONS, transfers);
    return BYTES * TIMES / Samples.percentile(micros, 0) / 1e3;
  }
}
