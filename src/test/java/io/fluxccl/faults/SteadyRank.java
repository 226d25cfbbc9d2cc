package io.fluxccl.faults;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;

/**
 * A rank that all-reduces without an end and checks each result. Prints "joining", "joined", "steps
 * N" every tenth of a second, and "failed CODE rank=R MESSAGE".
 */
final class SteadyRank {
  private static final int COUNT = 100_003;
  private static final long TELL_NANOS = 100_000_000;

  private SteadyRank() {}

  public static void main(String[] args) {
    System.out.println("joining");
    try (RankGroup group = RankGroup.fromEnvironment().join();
        IntView mine = group.device().allocateInts(COUNT);
        IntView sum = group.device().allocateInts(COUNT)) {
      System.out.println("joined");
      Collectives collectives = group.collectives();
      int ranks = group.nRanks();
      long told = System.nanoTime();
      for (int step = 0; ; step++) {
        for (int i = 0; i < COUNT; i++) {
          mine.put(i, step * 31 + i + group.rank());
        }
        collectives.allReduce(mine, sum, ReduceOp.SUM).block();
        for (int i = 0; i < COUNT; i++) {
          int expected = ranks * (step * 31 + i) + ranks * (ranks - 1) / 2;
          if (sum.get(i) != expected) {
            System.out.println("wrong step=" + step + " at=" + i + " got=" + sum.get(i));
            System.exit(1);
          }
        }
        if (System.nanoTime() - told > TELL_NANOS) {
          told = System.nanoTime();
          System.out.println("steps " + step);
        }
      }
    } catch (RuntimeException e) {
      FluxCclException failure = FluxCclException.from(e);
      System.out.println(
          "failed " + failure.code() + " rank=" + failure.rank() + " " + failure.getMessage());
    }
  }
}
