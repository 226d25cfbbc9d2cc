// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.testkit.Ranks;
import java.time.Duration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** More code of docs/4-testing.md. */
@Tag("alone")
class TestingWithRanksTest {
  @Test
  @Ranks(4)
  void shouldCountTheRanks(LocalRank rank, Collectives collectives) {
    try (IntView one = rank.device().allocateInts(1)) {
      one.put(0, 1);
      StepVerifier.create(collectives.allReduce(one, ReduceOp.SUM))
          .expectComplete()
          .verify(Duration.ofSeconds(30));
      assertThat(one.get(0)).isEqualTo(4);
    }
  }

  static final class Service {
    public static void main(String[] arguments) {
      try (RankGroup group = RankGroup.fromEnvironment().join()) {
        System.out.println("serving");
        Mono.fromFuture(group.communicator().failed())
            .doOnNext(e -> System.out.println("rank " + e.rank() + " is to blame: " + e.code()))
            .block();
      }
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldNameTheRankThatWasKilled() {
    try (ProcessRanks ranks = ProcessRanks.of(2, Service.class)) {
      ranks.all().forEach(rank -> rank.awaitLine("serving"));
      ranks.get(1).kill();
      assertThat(ranks.get(0).awaitLine("rank 1 is to blame")).endsWith("REMOTE_FAILURE");
      assertThat(ranks.get(0).end()).isZero();
    }
  }
}
