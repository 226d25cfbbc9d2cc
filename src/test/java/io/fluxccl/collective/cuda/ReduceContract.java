// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Checks an algorithm of the family on any number of ranks. */
record ReduceContract(String algorithm, boolean registered, AtomicInteger done) {
  private static final Duration LONG = Duration.ofSeconds(120);

  /**
   * Emulated GPUs are slow: without -Plong they run a ninth of the cases, spread over types and
   * counts, and fewer with many ranks.
   */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  /** Offsets of input and output from the start of a cache line, in bytes. */
  private static final int[][] SHIFTS = {{0, 0}, {16, 32}, {8, 0}, {4, 8}, {2, 4}, {1, 1}};

  private static final List<Collective> KINDS =
      List.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE);

  ReduceContract(String algorithm, boolean registered) {
    this(algorithm, registered, new AtomicInteger());
  }

  /** Checks that the algorithm supports at least {@code least} calls with correct results. */
  void check(LocalRanks ranks, List<Integer> counts, int least) {
    ranks.run(LONG, rank -> check(rank, counts));
    assertThat(done.get()).isGreaterThan(THIN ? least / 20 : least);
  }

  private void check(LocalRank rank, List<Integer> counts) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withTimeout(LONG);
    for (Collective each : KINDS) {
      options = options.withAlgorithm(each, algorithm);
    }
    int n = rank.nRanks();
    int most = counts.stream().mapToInt(i -> i).max().orElse(0) * 8;
    try (Collectives collectives = NearWrap.of(lane(rank, options));
        DeviceBuffer memory = rank.device().allocate(RandomCollectiveCase.memory(n, most))) {
      if (registered) {
        collectives.register(memory).join();
      }
      int i = 0;
      for (Collective kind : KINDS) {
        for (DataType type : DataType.values()) {
          for (int count : counts) {
            int every = !THIN ? 1 : n < 8 ? 9 : 17;
            if (i % every == i / every % every) {
              ReduceOp op = ReduceOp.values()[i % ReduceOp.values().length];
              DeviceBuffer part =
                  memory.slice(0, RandomCollectiveCase.memory(n, count * type.size()));
              int[] shifts = SHIFTS[i / 2 % SHIFTS.length];
              boolean inPlace = i % 2 == 0;
              Random random = new Random(i);
              run(
                  collectives,
                  new RandomCollectiveCase(random, n, kind, 8)
                      .with(type, count, inPlace)
                      .ofAnyBits(op)
                      .at(
                          shifts[0] / type.size() * type.size(),
                          shifts[1] / type.size() * type.size())
                      .on(rank.rank(), part),
                  inPlace);
              run(
                  collectives,
                  new RandomCollectiveCase(random, n, kind, 8)
                      .with(type, count, !inPlace)
                      .ofAnyBits(ReduceOp.SUM)
                      .on(rank.rank(), part),
                  !inPlace);
            }
            i++;
          }
        }
      }
    }
  }

  private void run(Collectives collectives, RandomCollectiveCase.Run run, boolean inPlace) {
    if (isSupported(collectives, run.call)) {
      Mono<Void> once = collectives.run(run.call);
      (inPlace ? once : Flux.concat(once, once, once).then()).block(LONG);
      run.verify();
      done.incrementAndGet();
    }
  }

  private boolean isSupported(Collectives collectives, CollectiveCall call) {
    try {
      return collectives.algorithmFor(call).equals(algorithm);
    } catch (InvalidUsage none) {
      return false;
    }
  }
}
