// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class LocalRankBarrierTest {
  @Test
  void shouldReleaseNoRankBeforeAllRanksHaveArrived() {
    AtomicInteger arrivals = new AtomicInteger();
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            for (int round = 1; round <= 200; round++) {
              arrivals.incrementAndGet();
              rank.awaitAll();
              assertThat(arrivals.get()).isBetween(3 * round, 3 * round + 2);
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldEndTheWaitWhenAnotherRankHasFailedAndWorkAgainAfterwards() {
    AtomicInteger ended = new AtomicInteger();
    try (LocalRanks ranks = LocalRanks.of(3)) {
      assertThatThrownBy(
              () ->
                  ranks.run(
                      rank -> {
                        if (rank.rank() == 1) {
                          throw new IllegalStateException("on purpose");
                        }
                        try {
                          rank.awaitAll();
                        } catch (Aborted e) {
                          ended.incrementAndGet();
                        }
                      }))
          .hasMessageContaining("on purpose");
      assertThat(ended).hasValue(2);
      ranks.run(LocalRank::awaitAll);
    }
  }
}
