// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.Generation;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;

/**
 * A rank of a job that heals. Prints "generation N of R ranks: SUM" when all ranks of a generation
 * have all-reduced a 1, and idles until it ends.
 */
final class GenerationsRank {
  private GenerationsRank() {}

  public static void main(String[] args) {
    try {
      RankGroup.generations(JoinOptions.fromEnvironment())
          .doOnNext(GenerationsRank::work)
          .blockLast();
    } catch (RuntimeException e) {
      System.out.println("failed " + FluxCclException.from(e).getMessage());
    }
  }

  static void work(RankGroup group) {
    Generation generation = group.generation();
    try (IntView one = group.device().allocateInts(1)) {
      one.put(0, 1);
      group.collectives().allReduce(one, one, ReduceOp.SUM).block();
      System.out.printf(
          "generation %d of %d ranks: %d%n", generation.number(), group.nRanks(), one.get(0));
    } catch (RuntimeException e) {
      System.out.println("ended " + FluxCclException.from(e).getMessage());
    }
  }
}
