// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.collective.ExpertTrial.Routing;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Fused all-reduces, dispatches and combines of random shapes, for {@code
 * -Dfluxccl.random.seconds}, drawn from {@code -Dfluxccl.random.seed}. The plain collectives have
 * {@code fluxccl bench soak}.
 */
@Timeout(7200)
abstract class RandomShapesContract {
  private static final Duration TIME =
      Duration.ofSeconds(Integer.getInteger("fluxccl.random.seconds", Rounds.of(5, 60)));
  private static final long SEED = Long.getLong("fluxccl.random.seed", Rounds.SEED);
  private static final int MOST_RANKS = 8;
  private static final int ROUNDS = 4;

  @Test
  @Tag("long")
  void shouldBeRightWhateverTheShape() {
    Random random = new Random(SEED);
    long end = System.nanoTime() + TIME.toNanos();
    long rounds = 0;
    do {
      int nRanks = 2 + random.nextInt(random.nextBoolean() ? MOST_RANKS - 1 : 2);
      try (LocalRanks ranks = OnRanks.Runner.create(this, nRanks)) {
        for (int round = 0; round < ROUNDS; round++) {
          doRows(random, ranks);
          doExperts(random, ranks, nRanks);
          rounds++;
        }
      }
    } while (System.nanoTime() < end);
    System.out.println(rounds + " rounds from seed " + SEED);
  }

  private static void doRows(Random random, LocalRanks ranks) {
    int hidden = 8 * (1 + random.nextInt(random.nextBoolean() ? 16 : 300));
    int rows = 1 + random.nextInt(random.nextBoolean() ? 4 : 40);
    FusedRows checked = new FusedRows();
    ranks.run(
        FusedRows.LONG, rank -> checked.check(rank, CollectivesOptions.DEFAULT, hidden, 1, rows));
  }

  private static void doExperts(Random random, LocalRanks ranks, int nRanks) {
    boolean isScaled = random.nextBoolean();
    int tokens = 1 + random.nextInt(60);
    int experts = nRanks * (1 + random.nextInt(8));
    int hidden = (isScaled ? 128 : 8) * (1 + random.nextInt(isScaled ? 8 : 130));
    DataType type = isScaled ? DataType.FLOAT8_E4M3 : DataType.BFLOAT16;
    int topK = 1 + random.nextInt(Math.min(12, experts));
    ExpertShape shape = new ExpertShape(tokens, topK, experts, hidden, type, tokens * nRanks);
    Routing routing = Routing.values()[random.nextInt(Routing.values().length)];
    int seed = random.nextInt();
    boolean ofRows = random.nextBoolean();
    ranks.run(
        FusedRows.LONG,
        rank -> {
          try (Collectives collectives = Collectives.create(rank.communicator()).join();
              ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), nRanks)) {
            trial.upload(routing, seed, ofRows);
            rank.awaitAll();
            collectives.run(trial.dispatch()).block(FusedRows.LONG);
            trial.checkDispatch();
            collectives.run(trial.combine(ofRows)).block(FusedRows.LONG);
            trial.checkCombine(ofRows);
          }
        });
  }
}
