// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.SpinPolicy;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * The barrier of the collectives: each rank signals every other rank and waits for all. The main
 * method measures it.
 */
final class FlagBarrier {
  private static final int LINE = 128;
  private final long base;
  private final int rank;
  private final int ranks;

  FlagBarrier(long base, int rank, int ranks) {
    this.base = base;
    this.rank = rank;
    this.ranks = ranks;
  }

  static long length(int ranks) {
    return (long) ranks * ranks * LINE;
  }

  private long flag(int to, int from) {
    return base + ((long) to * ranks + from) * LINE;
  }

  private void cross(long round) {
    for (int i = 1; i < ranks; i++) {
      HostMemory.putLongRelease(flag((rank + i) % ranks, rank), round);
    }
    for (int i = 1; i < ranks; i++) {
      int peer = (rank + ranks - i) % ranks;
      SpinWait.awaitAtLeast(flag(rank, peer), round, 0, peer);
    }
  }

  /** Returns the nanoseconds per round: the lower quartile of batches, to exclude busy phases. */
  double measure(int batches, int rounds) {
    double[] nanos = new double[batches];
    long round = 0;
    for (int batch = 0; batch < batches; batch++) {
      long start = System.nanoTime();
      for (int i = 0; i < rounds; i++) {
        cross(++round);
      }
      nanos[batch] = (System.nanoTime() - start) / (double) rounds;
    }
    Arrays.sort(nanos);
    return nanos[batches / 4];
  }

  /** Arguments: segment's name in hex, ranks, batches, rounds. Prints nanoseconds. */
  public static void main(String[] args) {
    SharedSegment segment =
        SharedSegment.open(SegmentName.decode(HexFormat.of().parseHex(args[0])));
    int ranks = Integer.parseInt(args[1]);
    SpinPolicy.setProcessesOnHost(ranks);
    SpinPolicy.enter();
    int rank = Integer.parseInt(System.getenv("FLUXCCL_RANK"));
    FlagBarrier barrier = new FlagBarrier(segment.address(), rank, ranks);
    double nanos = barrier.measure(Integer.parseInt(args[2]), Integer.parseInt(args[3]));
    SpinPolicy.exit();
    segment.release();
    System.out.println(nanos);
  }
}
