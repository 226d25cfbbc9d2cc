// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.FluxCclException;
import io.fluxccl.group.GroupMeters;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import reactor.core.Disposable;

/**
 * A rank of an idle job is stopped, and the other ranks, which run in this JVM, heal. The library's
 * bound: they report the silent rank within 3 s.
 */
@Tag("faults")
@Tag("timed")
@Timeout(180)
@Isolated
class SilenceTest {
  private static final int RANKS = 3;
  private static final int VICTIM = 2;
  private static final Duration SOON = Duration.ofSeconds(3);
  private static final Duration LIMIT = Duration.ofSeconds(8);

  private final ProcessRanks.Builder job =
      TestJvms.withLog(RANKS, GenerationsRank.class)
          .failure("failed")
          .variables(Map.of("FLUXCCL_LEAST_RANKS", "" + VICTIM));
  private final SimpleMeterRegistry registry = new SimpleMeterRegistry();
  private final GroupMeters meters = GroupMeters.register(registry);
  private final List<BlockingQueue<RankGroup>> groups = new ArrayList<>();
  private final List<Disposable> jobs = new ArrayList<>();

  @AfterEach
  void end() {
    jobs.forEach(Disposable::dispose);
  }

  private RankGroup next(int rank) throws InterruptedException {
    RankGroup group = groups.get(rank).poll(60, TimeUnit.SECONDS);
    assertThat(group).as("the next generation").isNotNull();
    return group;
  }

  private double meter(String name) {
    return registry.get(name).gauge().value();
  }

  @Test
  void shouldReportASilentRankAndContinueWithoutItAfterTheLivenessTimeout() throws Exception {
    for (int rank = 0; rank < VICTIM; rank++) {
      BlockingQueue<RankGroup> queue = new LinkedBlockingQueue<>();
      groups.add(queue);
      jobs.add(
          RankGroup.generations(
                  job.joinOptions(rank).withLeastRanks(VICTIM).withLivenessTimeout(LIMIT))
              .doOnNext(GenerationsRank::work)
              .subscribe(queue::add));
    }
    try (ProcessRank victim = job.startRank(VICTIM)) {
      assertThat(victim.awaitLine("generation")).isEqualTo("generation 1 of 3 ranks: 3");
      RankGroup first = meters.follow(next(0));
      RankGroup other = next(1);
      List<OptionalInt> told = new CopyOnWriteArrayList<>();
      first.silentRank().subscribe(told::add);
      assertThat(meter("fluxccl.ranks")).isEqualTo(RANKS);

      victim.stop();
      await().atMost(SOON).until(() -> told.contains(OptionalInt.of(VICTIM)));
      assertThat(meter("fluxccl.ranks.silent")).isEqualTo(1);
      other.silentRank().filter(OptionalInt.of(VICTIM)::equals).blockFirst(SOON);
      assertThat(first.communicator().failed()).isNotDone();

      RankGroup second = meters.follow(next(0));
      FluxCclException cause = second.generation().cause().orElseThrow();
      assertThat(cause).isInstanceOf(io.fluxccl.Timeout.class);
      assertThat(cause.rank()).isEqualTo(VICTIM);
      assertThat(second.nRanks()).isEqualTo(VICTIM);
      assertThat(meter("fluxccl.ranks.silent")).isZero();
      assertThat(meter("fluxccl.generation")).isEqualTo(second.generation().number());
      assertThat(registry.get("fluxccl.failures").tag("code", "timeout").counter().count())
          .isEqualTo(1);
      next(1);

      victim.resume();
      second.newcomers().block(Duration.ofSeconds(60));
      second.renew("the rank that was silent is back");
      assertThat(next(0).nRanks()).isEqualTo(RANKS);
      victim.awaitLineWith("of 3 ranks: 3");
    }
  }
}
