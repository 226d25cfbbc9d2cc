// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.group.StepLoop.Step;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.awaitility.core.ConditionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/** Rank 0 of a step loop against a follower that is slower, or that does not follow. */
@Timeout(120)
class StepWindowTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration LIMIT = Duration.ofMillis(1500);
  private static final int RANKS = 3;
  private static final int SLOW = 2;
  private static final int AHEAD = 1 + StepWindow.AHEAD;
  private static final int STEPS = 60;
  private static final byte[] COMMAND = {7};

  private final List<RankGroup> groups = new ArrayList<>();
  private final List<CompletableFuture<Void>> following = new ArrayList<>();

  @AfterEach
  void close() {
    CompletableFuture<?>[] closing =
        groups.stream().map(RankGroup::closeAsync).toArray(CompletableFuture<?>[]::new);
    assertThat(CompletableFuture.allOf(closing)).succeedsWithin(LONG);
  }

  private StepLoop lead(Duration limit, Function<RankGroup, Step> steps) {
    groups.addAll(RankGroup.local(RANKS, JoinOptions.of(0, 1).withTimeout(limit)));
    List<StepLoop> loops = new ArrayList<>();
    groups.forEach(group -> loops.add(StepLoop.of(group, 64, 1, steps.apply(group))));
    loops.stream().skip(1).forEach(loop -> following.add(loop.follow().toFuture()));
    return loops.get(0);
  }

  private static ConditionFactory soon() {
    return await().atMost(LONG).pollInterval(Duration.ofMillis(1));
  }

  private static CompletableFuture<Void> many(StepLoop leader) {
    return Flux.range(0, STEPS).concatMap(i -> leader.step(COMMAND)).then().toFuture();
  }

  @Test
  void shouldStayWithinTheWindowIfAFollowerIsSlow() {
    Queue<Sinks.Empty<Void>> slow = new ConcurrentLinkedQueue<>();
    AtomicInteger completed = new AtomicInteger();
    AtomicInteger begun = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    StepLoop leader =
        lead(
            LONG,
            group ->
                command -> {
                  if (group.rank() == 0) {
                    int ahead = begun.incrementAndGet() - completed.get();
                    most.accumulateAndGet(ahead, Math::max);
                  } else if (group.rank() == SLOW) {
                    Sinks.Empty<Void> end = Sinks.empty();
                    slow.add(end);
                    return end.asMono();
                  }
                  return Mono.empty();
                });
    CompletableFuture<Void> all = many(leader);
    soon().until(() -> begun.get() == AHEAD);
    for (int i = 0; i < STEPS; i++) {
      soon().until(() -> !slow.isEmpty());
      completed.incrementAndGet();
      slow.remove().tryEmitEmpty();
      int reachable = Math.min(STEPS, AHEAD + i + 1);
      // The follower confirms the step at once, because rank 0 waits; rank 0 then starts another.
      soon().until(() -> begun.get() == reachable);
    }
    assertThat(all).succeedsWithin(LONG);
    assertThat(most.get()).isEqualTo(AHEAD);
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
  }

  @Test
  void shouldNameAFollowerThatCompletesNoStepInTime() {
    StepLoop leader =
        lead(LIMIT, group -> command -> group.rank() == SLOW ? Mono.never() : Mono.empty());
    assertThat(many(leader))
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .isInstanceOfSatisfying(
            io.fluxccl.Timeout.class,
            timeout -> {
              assertThat(timeout.rank()).isEqualTo(SLOW);
              assertThat(timeout)
                  .hasMessageContaining("rank 2 has confirmed 0 of 17 steps")
                  .hasMessageContaining("has it called follow");
            });
    assertThat(following).allSatisfy(each -> assertThat(each).failsWithin(LONG));
  }

  @Test
  void shouldRefuseCommandsBeyondItsOwnWindow() {
    groups.addAll(RankGroup.local(2, JoinOptions.of(0, 1).withTimeout(LONG)));
    StepLoop leader = StepLoop.of(groups.get(0), 64, 100, command -> Mono.empty());
    following.add(StepLoop.of(groups.get(1), 64, 1, command -> Mono.never()).follow().toFuture());
    many(leader);
    assertThat(following.get(0))
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .isInstanceOf(Aborted.class)
        .withMessageContaining("give the same maxInFlight on every rank");
  }

  @Test
  void shouldRefuseAMalformedConfirmation() {
    groups.addAll(RankGroup.local(2, JoinOptions.of(0, 1).withTimeout(LONG)));
    StepLoop leader = StepLoop.of(groups.get(0), 64, 1, command -> Mono.empty());
    byte[] tooMany = {0, 0, 0, 0, 0, 0, 1, 0};
    groups.get(1).bootstrap().send(0, StepLoop.FIRST_TAG, tooMany, io.fluxccl.Deadline.never());
    assertThat(many(leader))
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .isInstanceOfSatisfying(
            FluxCclException.class,
            failure -> {
              assertThat(failure.rank()).isEqualTo(1);
              assertThat(failure).hasMessageContaining("malformed confirmation of steps");
            });
  }
}
