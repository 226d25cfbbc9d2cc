// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.group.Groups.assertAllSucceed;
import static io.fluxccl.group.Groups.assertCompletes;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.device.FloatView;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.awaitility.core.ConditionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.core.scheduler.Schedulers;

@Timeout(120)
class StepLoopTest {
  private static final Duration LIMIT = Duration.ofMillis(1500);
  private static final Duration IDLE = Duration.ofSeconds(3);
  private static final int RANKS = 3;
  private static final int SLOW = 2;
  private static final int AHEAD = 1 + StepWindow.AHEAD;
  private static final int STEPS = 60;

  private final List<RankGroup> groups = new ArrayList<>();
  private final List<StepLoop> loops = new ArrayList<>();
  private final List<CompletableFuture<Void>> following = new ArrayList<>();
  private final AtomicInteger begun = new AtomicInteger();

  @AfterEach
  void close() {
    Groups.closeAll(groups);
  }

  /** The work of one rank in a step. */
  private interface Work {
    Mono<Void> run(RankGroup group, byte[] command);
  }

  private StepLoop lead(int maxInFlight, Work work) {
    return lead(LONG, maxInFlight, work);
  }

  private StepLoop lead(Duration limit, int maxInFlight, Work work) {
    groups.addAll(RankGroup.local(RANKS, JoinOptions.of(0, 1).withTimeout(limit)));
    groups.forEach(group -> loops.add(loop(group, 64, maxInFlight, work)));
    loops.stream().skip(1).forEach(loop -> following.add(loop.follow().toFuture()));
    return loops.get(0);
  }

  private static StepLoop loop(RankGroup group, int bytes, int maxInFlight, Work work) {
    return StepLoop.of(group, bytes, maxInFlight, command -> work.run(group, command));
  }

  private Mono<Void> countAndMeet(RankGroup group, byte[] command) {
    begun.incrementAndGet();
    return group.collectives().barrier();
  }

  private static byte[] bytes(int... values) {
    byte[] bytes = new byte[values.length];
    IntStream.range(0, values.length).forEach(i -> bytes[i] = (byte) values[i]);
    return bytes;
  }

  private static CompletableFuture<Void> many(StepLoop leader) {
    return Flux.range(0, STEPS).concatMap(i -> leader.step(bytes(7))).then().toFuture();
  }

  private void assertShutsDown(StepLoop leader) {
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    assertAllSucceed(following);
  }

  private void assertAllEndWith(String... message) {
    following.forEach(each -> assertFails(each, FluxCclException.class, message));
  }

  private static ConditionFactory soon() {
    return await().atMost(LONG).pollInterval(Duration.ofMillis(1));
  }

  @Test
  void shouldAllReduceWithTheCommandOfTheLeader() {
    Map<RankGroup, FloatView> views = new ConcurrentHashMap<>();
    StepLoop leader =
        lead(
            1,
            (group, command) -> {
              FloatView x = views.computeIfAbsent(group, any -> group.device().allocateFloats(8));
              x.put(0, command[0] * (group.rank() + 1));
              return group.collectives().allReduce(x, ReduceOp.SUM);
            });
    for (int i = 1; i < 100; i++) {
      assertCompletes(leader.step(bytes(i)));
      assertThat(views.get(groups.get(0)).get(0)).isEqualTo(i * 6);
    }
    following.add(leader.ended().toFuture());
    assertShutsDown(leader);
    assertThat(views.values()).hasSize(RANKS).allMatch(view -> view.get(0) == 99 * 6);
    views.values().forEach(view -> view.buffer().close());
  }

  @Test
  void shouldRunStepsOfManyThreadsInOneOrderOnAllRanks() {
    Map<Integer, Queue<Integer>> seen = new ConcurrentHashMap<>();
    StepLoop leader =
        lead(
            2,
            (group, command) -> {
              seen.computeIfAbsent(group.rank(), any -> new ConcurrentLinkedQueue<>())
                  .add(command[0] * 256 + (command[1] & 0xff));
              return group.collectives().barrier();
            });
    assertCompletes(
        Flux.range(0, 4)
            .flatMap(
                thread ->
                    Flux.range(0, 50)
                        .concatMap(i -> leader.step(bytes(thread, i)))
                        .subscribeOn(Schedulers.boundedElastic()))
            .then());
    assertShutsDown(leader);
    assertThat(seen.get(0)).hasSize(200);
    assertThat(List.copyOf(seen.get(1))).isEqualTo(List.copyOf(seen.get(0)));
    assertThat(List.copyOf(seen.get(2))).isEqualTo(List.copyOf(seen.get(0)));
  }

  @Test
  void shouldBeginNoMoreStepsThanMayBeInFlight() {
    List<Sinks.Empty<Void>> ends = new CopyOnWriteArrayList<>();
    StepLoop leader = lead(2, (group, command) -> group.rank() == 1 ? open(ends) : Mono.empty());
    Flux.range(0, 5).flatMap(i -> leader.step(bytes(i))).blockLast(LONG);
    assertThat(leader.shutdown()).succeedsWithin(LONG);
    for (int i = 0; i < 5; i++) {
      int inFlight = Math.min(i + 2, 5);
      await().until(() -> ends.size() == inFlight);
      assertThat(following.get(0)).isNotDone();
      ends.get(i).tryEmitEmpty();
    }
    assertThat(following.get(0)).succeedsWithin(LONG);
    assertThat(ends).hasSize(5);
  }

  /** Returns a step that ends when the test ends it. */
  private static Mono<Void> open(Collection<Sinks.Empty<Void>> ends) {
    Sinks.Empty<Void> end = Sinks.empty();
    ends.add(end);
    return end.asMono();
  }

  @Test
  void shouldSignalAStepBeforeTheNextOneBegins() {
    List<String> order = new CopyOnWriteArrayList<>();
    StepLoop leader =
        lead(
            1,
            (group, command) -> {
              if (group.rank() == 0) {
                order.add("begin " + command[0]);
              }
              return group.collectives().barrier();
            });
    Flux.range(0, 50)
        .flatMap(i -> leader.step(bytes(i)).doOnSuccess(done -> order.add("done " + i)), 50)
        .blockLast(LONG);
    assertThat(order)
        .containsExactlyElementsOf(
            IntStream.range(0, 50)
                .boxed()
                .flatMap(i -> Stream.of("begin " + i, "done " + i))
                .toList());
  }

  /** The bound: a loop that waits for a step takes less than a twentieth of a core. */
  @Tag("timed")
  @Test
  void shouldIdleWithoutCpuTimeOrTimeoutIfNoStepIsSubmitted() throws Exception {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    List<Long> earlier = Arrays.stream(threads.getAllThreadIds()).boxed().toList();
    StepLoop leader = lead(Duration.ofMillis(2500), 1, this::countAndMeet);
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
    assertCompletes(leader.step(bytes(2)));
    assertShutsDown(leader);
  }

  private static long[] cpuNanos(ThreadMXBean threads, long[] ids) {
    return Arrays.stream(ids).map(threads::getThreadCpuTime).toArray();
  }

  @Test
  void shouldRunTheStepsInFlightBeforeItEnds() {
    StepLoop leader = lead(1, this::countAndMeet);
    Flux.range(0, 10).subscribe(i -> leader.step(bytes(i)).subscribe());
    CompletableFuture<Void> shutdown = leader.shutdown();
    assertShutsDown(leader);
    assertThat(shutdown).succeedsWithin(LONG);
    assertThat(begun).hasValue(10 * RANKS);
    assertFails(leader.step(bytes(1)).toFuture(), InvalidUsage.class, "shut");
    // The group stays open, and a second loop is independent of the first.
    List<StepLoop> others =
        groups.stream()
            .map(group -> StepLoop.of(group, command -> countAndMeet(group, command)))
            .toList();
    others.stream().skip(1).forEach(loop -> following.add(loop.follow().toFuture()));
    assertCompletes(others.get(0).step(new byte[0]));
    assertShutsDown(others.get(0));
  }

  @Test
  void shouldLeadInEachSubGroupApart() {
    groups.addAll(RankGroup.local(4));
    List<List<Integer>> seen = new ArrayList<>();
    for (RankGroup pair : Groups.pairs(groups)) {
      List<Integer> mine = new CopyOnWriteArrayList<>();
      seen.add(mine);
      loops.add(
          StepLoop.of(
              pair,
              command -> {
                mine.add((int) command[0]);
                return pair.collectives().barrier();
              }));
    }
    following.add(loops.get(1).follow().toFuture());
    following.add(loops.get(3).follow().toFuture());
    assertCompletes(loops.get(0).step(bytes(1)).and(loops.get(2).step(bytes(2))));
    assertThat(loops.get(0).shutdown()).succeedsWithin(LONG);
    assertThat(following.get(0)).succeedsWithin(LONG);
    assertCompletes(loops.get(2).step(bytes(3)));
    assertShutsDown(loops.get(2));
    assertThat(seen).containsExactly(List.of(1), List.of(1), List.of(2, 3), List.of(2, 3));
  }

  @Test
  void shouldFinishTheStepIfItsSubscriberCancels() {
    StepLoop leader = lead(1, this::countAndMeet);
    for (int i = 0; i < 10; i++) {
      leader.step(bytes(i)).subscribe().dispose();
    }
    assertCompletes(leader.step(bytes(10)));
    assertShutsDown(leader);
    assertThat(begun).hasValue(11 * RANKS);
  }

  @Test
  void shouldEndOnAllRanksWhenAStepThrowsOnAFollower() {
    StepLoop leader =
        lead(
            1,
            (group, command) -> {
              if (group.rank() == 2 && command[0] == 1) {
                throw new IllegalStateException("no weights");
              }
              return group.collectives().barrier();
            });
    leader.step(bytes(0)).block(LONG);
    following.add(leader.step(bytes(1)).toFuture());
    following.add(leader.step(bytes(2)).toFuture());
    assertAllEndWith("step 1 failed on rank 2", "no weights");
    assertThat(groups.get(0).communicator().failure().rank()).isEqualTo(2);
    assertFails(leader.step(bytes(3)).toFuture(), Aborted.class);
    assertThat(leader.shutdown()).failsWithin(LONG);
  }

  @Test
  void shouldEndOnAllRanksWhenAStepFailsOnTheLeader() {
    InvalidUsage failure = new InvalidUsage("17 is too much");
    StepLoop leader =
        lead(
            1,
            (group, command) ->
                group.rank() == 0 ? Mono.error(failure) : group.collectives().barrier());
    following.add(leader.step(bytes(0)).toFuture());
    assertAllEndWith("step 0 failed on rank 0", "17 is too much");
  }

  @Test
  void shouldRefuseAStepWithoutAMono() {
    StepLoop leader = lead(1, (group, command) -> group.rank() == 1 ? null : Mono.never());
    following.add(leader.step(bytes(0)).toFuture());
    assertAllEndWith("step 0 failed on rank 1", "null");
  }

  @Test
  void shouldEndOnAllRanksWhenARankAborts() {
    StepLoop leader = lead(1, (group, command) -> Mono.never());
    following.add(leader.step(bytes(0)).toFuture());
    following.add(leader.ended().toFuture());
    groups.get(1).communicator().abort(Aborted.of(1, "rank 1 has enough"));
    assertAllEndWith("rank 1 has enough");
  }

  @Test
  void shouldFailWhenTheLeaderLeavesWithoutShutdown() {
    lead(1, (group, command) -> Mono.empty());
    CompletableFuture<Void> leaving = groups.get(0).closeAsync();
    // Close waits for the other ranks for a while.
    following.forEach(each -> assertFails(each, RemoteFailure.class, "rank 0"));
    assertThat(leaving).succeedsWithin(LONG);
  }

  @Test
  void shouldEndWhenTheGroupIsClosed() {
    StepLoop leader = lead(1, (group, command) -> Mono.never());
    following.add(leader.step(bytes(0)).toFuture());
    Groups.closeAll(groups);
    following.forEach(each -> assertThat(each).failsWithin(LONG));
  }

  @Test
  void shouldRefuseInvalidArgumentsAndOperationsOfOtherRanks() {
    StepLoop leader = lead(1, (group, command) -> Mono.empty());
    assertRefused(leader::follow);
    assertRefused(() -> loops.get(1).step(bytes(1)), "rank 1");
    assertRefused(() -> loops.get(2).shutdown());
    assertRefused(() -> leader.step(new byte[65]), "65", "64");
    assertRefused(() -> leader.step(null));
    RankGroup group = groups.get(0);
    assertRefused(() -> StepLoop.of(group, null));
    assertRefused(() -> StepLoop.of(group, 64, 0, command -> Mono.empty()), "maxInFlight=0");
    assertRefused(() -> StepLoop.of(group, -1, 1, command -> Mono.empty()));
  }

  /** Opens two groups with a loop on each: rank 0 leads, and rank 1 follows. */
  private StepLoop leadOne(int maxInFlight, int bytesOfFollower, Mono<Void> ofFollower) {
    groups.addAll(RankGroup.local(2, JoinOptions.of(0, 1).withTimeout(LONG)));
    StepLoop follower = loop(groups.get(1), bytesOfFollower, 1, (group, command) -> ofFollower);
    following.add(follower.follow().toFuture());
    return loop(groups.get(0), 64, maxInFlight, (group, command) -> Mono.empty());
  }

  @Test
  void shouldRefuseACommandThatIsLongerThanThisRankExpects() {
    StepLoop leader = leadOne(1, 8, Mono.empty());
    // The step may complete before the refusal arrives, or fail with it.
    leader.step(new byte[9]).onErrorComplete(Aborted.class).block(LONG);
    assertAllEndWith("malformed command", "rank 1");
  }

  @Test
  void shouldRefuseCommandsBeyondItsOwnWindow() {
    many(leadOne(100, 64, Mono.never()));
    String message = "give the same maxInFlight on every rank";
    assertFails(following.get(0), Aborted.class, message);
  }

  @Test
  void shouldRefuseAMalformedConfirmation() {
    groups.addAll(RankGroup.local(2, JoinOptions.of(0, 1).withTimeout(LONG)));
    StepLoop leader = loop(groups.get(0), 64, 1, (group, command) -> Mono.empty());
    byte[] tooMany = {0, 0, 0, 0, 0, 0, 1, 0};
    groups.get(1).bootstrap().send(0, StepLoop.FIRST_TAG, tooMany, io.fluxccl.Deadline.never());
    String message = "malformed confirmation of steps";
    assertThat(assertFails(many(leader), FluxCclException.class, message).rank()).isEqualTo(1);
  }

  @Test
  void shouldStayWithinTheWindowIfAFollowerIsSlow() {
    Queue<Sinks.Empty<Void>> slow = new ConcurrentLinkedQueue<>();
    AtomicInteger completed = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    StepLoop leader =
        lead(
            1,
            (group, command) -> {
              if (group.rank() == 0) {
                most.accumulateAndGet(begun.incrementAndGet() - completed.get(), Math::max);
              }
              return group.rank() == SLOW ? open(slow) : Mono.empty();
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
    assertShutsDown(leader);
  }

  @Test
  void shouldNameAFollowerThatCompletesNoStepInTime() {
    StepLoop leader =
        lead(LIMIT, 1, (group, command) -> group.rank() == SLOW ? Mono.never() : Mono.empty());
    String confirmed = "rank 2 has confirmed 0 of 17 steps";
    FluxCclException late =
        assertFails(many(leader), io.fluxccl.Timeout.class, confirmed, "has it called follow");
    assertThat(late.rank()).isEqualTo(SLOW);
    assertThat(following).allSatisfy(each -> assertThat(each).failsWithin(LONG));
  }
}
