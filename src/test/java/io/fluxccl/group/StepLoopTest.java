// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.StepLoop.Step;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

@Timeout(120)
class StepLoopTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration STEP_LIMIT = Duration.ofMillis(2500);
  private static final Duration IDLE = Duration.ofSeconds(3);
  private static final int RANKS = 3;

  private final List<RankGroup> groups = new ArrayList<>();
  private final List<StepLoop> loops = new ArrayList<>();
  private final List<CompletableFuture<Void>> following = new ArrayList<>();

  @AfterEach
  void close() {
    CompletableFuture<?>[] closing =
        groups.stream().map(RankGroup::closeAsync).toArray(CompletableFuture<?>[]::new);
    assertThat(CompletableFuture.allOf(closing)).succeedsWithin(LONG);
  }

  private StepLoop lead(Duration limit, int maxInFlight, Function<RankGroup, Step> steps) {
    groups.addAll(RankGroup.local(RANKS, JoinOptions.of(0, 1).withTimeout(limit)));
    for (RankGroup group : groups) {
      loops.add(StepLoop.of(group, 64, maxInFlight, steps.apply(group)));
    }
    loops.stream().skip(1).forEach(loop -> following.add(loop.follow().toFuture()));
    return loops.get(0);
  }

  private static byte[] bytes(int... values) {
    byte[] bytes = new byte[values.length];
    IntStream.range(0, values.length).forEach(i -> bytes[i] = (byte) values[i]);
    return bytes;
  }

  private void assertAllEndWith(String... message) {
    for (CompletableFuture<Void> each : following) {
      assertThat(each)
          .failsWithin(LONG)
          .withThrowableThat()
          .havingCause()
          .isInstanceOf(FluxCclException.class)
          .withMessageContainingAll(message);
    }
  }

  @Test
  void shouldAllReduceWithTheCommandOfTheLeader() {
    List<FloatView> views = new CopyOnWriteArrayList<>();
    StepLoop leader =
        lead(
            LONG,
            1,
            group -> {
              FloatView x = group.device().allocateFloats(8);
              views.add(x);
              return command -> {
                x.put(0, command[0] * (group.rank() + 1));
                return group.collectives().allReduce(x, ReduceOp.SUM);
              };
            });
    for (int i = 1; i < 100; i++) {
      StepVerifier.create(leader.step(bytes(i))).expectComplete().verify(LONG);
      assertThat(views.get(0).get(0)).isEqualTo(i * 6);
    }
    following.add(leader.ended().toFuture());
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(views).allSatisfy(view -> assertThat(view.get(0)).isEqualTo(99 * 6));
    views.forEach(view -> view.buffer().close());
  }

  @Test
  void shouldRunStepsOfManyThreadsInOneOrderOnAllRanks() {
    List<ConcurrentLinkedQueue<Integer>> seen = new ArrayList<>();
    StepLoop leader =
        lead(
            LONG,
            2,
            group -> {
              ConcurrentLinkedQueue<Integer> mine = new ConcurrentLinkedQueue<>();
              seen.add(mine);
              return command -> {
                mine.add(command[0] * 256 + (command[1] & 0xff));
                return group.collectives().barrier();
              };
            });
    Mono<Void> all =
        Flux.range(0, 4)
            .flatMap(
                thread ->
                    Flux.range(0, 50)
                        .concatMap(i -> leader.step(bytes(thread, i)))
                        .subscribeOn(Schedulers.boundedElastic()))
            .then();
    StepVerifier.create(all).expectComplete().verify(LONG);
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(seen.get(0)).hasSize(200);
    assertThat(List.copyOf(seen.get(1))).isEqualTo(List.copyOf(seen.get(0)));
    assertThat(List.copyOf(seen.get(2))).isEqualTo(List.copyOf(seen.get(0)));
  }

  @Test
  void shouldBeginNoMoreStepsThanMayBeInFlight() {
    List<Sinks.Empty<Void>> begun = new CopyOnWriteArrayList<>();
    StepLoop leader =
        lead(
            LONG,
            2,
            group ->
                command -> {
                  Sinks.Empty<Void> end = Sinks.empty();
                  if (group.rank() == 1) {
                    begun.add(end);
                    return end.asMono();
                  }
                  return Mono.empty();
                });
    Flux.range(0, 5).flatMap(i -> leader.step(bytes(i))).blockLast(LONG);
    CompletableFuture<Void> shutdown = leader.shutdown();
    assertThat(shutdown).succeedsWithin(LONG);
    for (int i = 0; i < 5; i++) {
      int inFlight = Math.min(i + 2, 5);
      await().until(() -> begun.size() == inFlight);
      assertThat(following.get(0)).isNotDone();
      begun.get(i).tryEmitEmpty();
    }
    assertThat(following.get(0)).succeedsWithin(LONG);
    assertThat(begun).hasSize(5);
  }

  @Test
  void shouldSignalAStepBeforeTheNextOneBegins() {
    List<String> order = new CopyOnWriteArrayList<>();
    StepLoop leader =
        lead(
            LONG,
            1,
            group ->
                command -> {
                  if (group.rank() == 0) {
                    order.add("begin " + command[0]);
                  }
                  return group.collectives().barrier();
                });
    Flux.range(0, 50)
        .flatMap(i -> leader.step(bytes(i)).doOnSuccess(done -> order.add("done " + i)), 50)
        .blockLast(LONG);
    assertThat(order).hasSize(100);
    for (int i = 0; i < 50; i++) {
      assertThat(order.subList(2 * i, 2 * i + 2)).containsExactly("begin " + i, "done " + i);
    }
  }

  /** The bound: a loop that waits for a step takes less than a twentieth of a core. */
  @Tag("timed")
  @Test
  void shouldIdleWithoutCpuTimeOrTimeoutIfNoStepIsSubmitted() throws Exception {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    List<Long> earlier = Arrays.stream(threads.getAllThreadIds()).boxed().toList();
    StepLoop leader = lead(STEP_LIMIT, 1, group -> command -> group.collectives().barrier());
    leader.step(bytes(1)).block(LONG);
    await().pollDelay(Duration.ofSeconds(1)).until(() -> true);
    // Ignore threads that other tests have left.
    long[] ids =
        Arrays.stream(threads.getAllThreadIds()).filter(id -> !earlier.contains(id)).toArray();
    assertThat(ids).hasSizeGreaterThanOrEqualTo(RANKS);
    long[] before = cpuNanos(threads, ids);
    await().pollDelay(IDLE).until(() -> true);
    long[] after = cpuNanos(threads, ids);
    long used = 0;
    for (int i = 0; i < ids.length; i++) {
      used += before[i] < 0 || after[i] < 0 ? 0 : after[i] - before[i];
    }
    assertThat(Duration.ofNanos(used)).isLessThan(IDLE.dividedBy(20));
    assertThat(following).noneMatch(CompletableFuture::isDone);
    StepVerifier.create(leader.step(bytes(2))).expectComplete().verify(LONG);
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
  }

  private static long[] cpuNanos(ThreadMXBean threads, long[] ids) {
    return Arrays.stream(ids).map(threads::getThreadCpuTime).toArray();
  }

  @Test
  void shouldRunTheStepsInFlightBeforeItEnds() {
    AtomicInteger runs = new AtomicInteger();
    StepLoop leader =
        lead(
            LONG,
            1,
            group ->
                command -> {
                  runs.incrementAndGet();
                  return group.collectives().barrier();
                });
    Flux.range(0, 10).subscribe(i -> leader.step(bytes(i)).subscribe());
    CompletableFuture<Void> shutdown = leader.shutdown();
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    assertThat(shutdown).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(runs).hasValue(10 * RANKS);
    StepVerifier.create(leader.step(bytes(1)))
        .expectErrorSatisfies(
            error ->
                assertThat(error).isInstanceOf(InvalidUsage.class).hasMessageContaining("shut"))
        .verify(LONG);
    // The group stays open, and a second loop is independent of the first.
    List<CompletableFuture<Void>> second = new ArrayList<>();
    List<StepLoop> others =
        groups.stream()
            .map(group -> StepLoop.of(group, command -> group.collectives().barrier()))
            .toList();
    others.stream().skip(1).forEach(loop -> second.add(loop.follow().toFuture()));
    StepVerifier.create(others.get(0).step(new byte[0])).expectComplete().verify(LONG);
    others.get(0).shutdown();
    second.forEach(each -> assertThat(each).succeedsWithin(LONG));
  }

  @Test
  void shouldLeadInEachSubGroupApart() {
    groups.addAll(RankGroup.local(4));
    List<CompletableFuture<Optional<RankGroup>>> splitting =
        groups.stream().map(group -> group.split("tensor", group.rank() / 2, 0)).toList();
    List<List<Integer>> seen = new ArrayList<>();
    for (CompletableFuture<Optional<RankGroup>> each : splitting) {
      RankGroup pair = each.join().orElseThrow();
      List<Integer> mine = new CopyOnWriteArrayList<>();
      seen.add(mine);
      Step step =
          command -> {
            mine.add((int) command[0]);
            return pair.collectives().barrier();
          };
      loops.add(StepLoop.of(pair, step));
    }
    following.add(loops.get(1).follow().toFuture());
    following.add(loops.get(3).follow().toFuture());
    StepVerifier.create(loops.get(0).step(bytes(1)).and(loops.get(2).step(bytes(2))))
        .expectComplete()
        .verify(LONG);
    assertThat(loops.get(0).shutdown()).succeedsWithin(LONG);
    assertThat(following.get(0)).succeedsWithin(LONG);
    StepVerifier.create(loops.get(2).step(bytes(3))).expectComplete().verify(LONG);
    assertThat(loops.get(2).shutdown()).succeedsWithin(LONG);
    assertThat(following.get(1)).succeedsWithin(LONG);
    assertThat(seen).containsExactly(List.of(1), List.of(1), List.of(2, 3), List.of(2, 3));
  }

  @Test
  void shouldFinishTheStepIfItsSubscriberCancels() {
    AtomicInteger runs = new AtomicInteger();
    StepLoop leader =
        lead(
            LONG,
            1,
            group ->
                command -> {
                  runs.incrementAndGet();
                  return group.collectives().barrier();
                });
    for (int i = 0; i < 10; i++) {
      Disposable cancelled = leader.step(bytes(i)).subscribe();
      cancelled.dispose();
    }
    StepVerifier.create(leader.step(bytes(10))).expectComplete().verify(LONG);
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    following.forEach(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(runs).hasValue(11 * RANKS);
  }

  @Test
  void shouldEndOnAllRanksWhenAStepThrowsOnAFollower() {
    StepLoop leader =
        lead(
            LONG,
            1,
            group ->
                command -> {
                  if (group.rank() == 2 && command[0] == 1) {
                    throw new IllegalStateException("no weights");
                  }
                  return group.collectives().barrier();
                });
    leader.step(bytes(0)).block(LONG);
    CompletableFuture<Void> failing = leader.step(bytes(1)).toFuture();
    CompletableFuture<Void> queued = leader.step(bytes(2)).toFuture();
    following.add(failing);
    following.add(queued);
    assertAllEndWith("step 1 failed on rank 2", "no weights");
    assertThat(groups.get(0).communicator().failure().rank()).isEqualTo(2);
    assertThatThrownBy(() -> leader.step(bytes(3)).block(LONG)).isInstanceOf(Aborted.class);
    assertThat(leader.shutdown()).failsWithin(LONG);
  }

  @Test
  void shouldEndOnAllRanksWhenAStepFailsOnTheLeader() {
    StepLoop leader =
        lead(
            LONG,
            1,
            group ->
                command ->
                    group.rank() == 0
                        ? Mono.error(new InvalidUsage("17 is too much"))
                        : group.collectives().barrier());
    following.add(leader.step(bytes(0)).toFuture());
    assertAllEndWith("step 0 failed on rank 0", "17 is too much");
  }

  @Test
  void shouldRefuseAStepWithoutAMono() {
    StepLoop leader = lead(LONG, 1, group -> command -> group.rank() == 1 ? null : Mono.never());
    following.add(leader.step(bytes(0)).toFuture());
    assertAllEndWith("step 0 failed on rank 1", "null");
  }

  @Test
  void shouldEndOnAllRanksWhenARankAborts() {
    StepLoop leader = lead(LONG, 1, group -> command -> Mono.never());
    following.add(leader.step(bytes(0)).toFuture());
    following.add(leader.ended().toFuture());
    groups.get(1).communicator().abort(Aborted.of(1, "rank 1 has enough"));
    assertAllEndWith("rank 1 has enough");
  }

  @Test
  void shouldFailWhenTheLeaderLeavesWithoutShutdown() {
    lead(LONG, 1, group -> command -> Mono.empty());
    CompletableFuture<Void> leaving = groups.get(0).closeAsync();
    // Close waits for the other ranks for a while.
    for (CompletableFuture<Void> each : following) {
      assertThat(each)
          .failsWithin(LONG)
          .withThrowableThat()
          .havingCause()
          .isInstanceOf(RemoteFailure.class)
          .withMessageContaining("rank 0");
    }
    assertThat(leaving).succeedsWithin(LONG);
  }

  @Test
  void shouldEndWhenTheGroupIsClosed() throws Exception {
    StepLoop leader = lead(LONG, 1, group -> command -> Mono.never());
    CompletableFuture<Void> pending = leader.step(bytes(0)).toFuture();
    CompletableFuture.allOf(
            groups.stream().map(RankGroup::closeAsync).toArray(CompletableFuture<?>[]::new))
        .get(60, TimeUnit.SECONDS);
    assertThat(pending).failsWithin(LONG);
    following.forEach(each -> assertThat(each).failsWithin(LONG));
  }

  @Test
  void shouldRefuseInvalidArgumentsAndOperationsOfOtherRanks() {
    StepLoop leader = lead(LONG, 1, group -> command -> Mono.empty());
    assertThatThrownBy(leader::follow).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> loops.get(1).step(bytes(1)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("rank 1");
    assertThatThrownBy(() -> loops.get(2).shutdown()).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> leader.step(new byte[65]))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContainingAll("65", "64");
    assertThatThrownBy(() -> leader.step(null)).isInstanceOf(InvalidUsage.class);
    RankGroup group = groups.get(0);
    assertThatThrownBy(() -> StepLoop.of(group, null)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> StepLoop.of(group, 64, 0, command -> Mono.empty()))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("maxInFlight=0");
    assertThatThrownBy(() -> StepLoop.of(group, -1, 1, command -> Mono.empty()))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldRefuseACommandThatIsLongerThanThisRankExpects() {
    groups.addAll(RankGroup.local(2));
    StepLoop leader = StepLoop.of(groups.get(0), 64, 1, command -> Mono.empty());
    following.add(StepLoop.of(groups.get(1), 8, 1, command -> Mono.empty()).follow().toFuture());
    // The step may complete before the refusal arrives, or fail with it.
    leader.step(new byte[9]).onErrorComplete(Aborted.class).block(LONG);
    assertAllEndWith("malformed command", "rank 1");
  }
}
