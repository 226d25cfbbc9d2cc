// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.FakeFamily;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

@Timeout(180)
class RankGroupClosingTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static List<RankGroup> local(int nRanks, FakeFamily family) {
    return RankGroup.local(
        nRanks,
        JoinOptions.of(0, 1)
            .withDevice(DeviceChoice.HOST)
            .withCollectives(CollectivesOptions.DEFAULT.withFamily(family)));
  }

  @Test
  void shouldCloseAllTheRestWhenCollectivesCannotBeClosed() {
    RankGroup group =
        local(
                1,
                new FakeFamily("fake") {
                  @Override
                  public void close() {
                    throw new IllegalStateException("on purpose");
                  }
                })
            .get(0);
    assertThatThrownBy(group::close).hasMessageContaining("on purpose");
    assertThat(group.communicator().isClosed()).isTrue();
    assertThatThrownBy(() -> group.device().allocate(64)).isInstanceOf(InvalidUsage.class);
    assertThat(group.bootstrap().failure()).succeedsWithin(LONG);
  }

  @Test
  void shouldFinishCancelledRunsBeforeClosing() {
    AtomicInteger finished = new AtomicInteger();
    HostKernel hold = HostKernel.of("hold", (context, args) -> sleep());
    HostKernel end = HostKernel.of("end", (context, args) -> finished.incrementAndGet());
    List<RankGroup> groups = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    for (RankGroup group : groups) {
      group
          .pipeline()
          .launch(hold, 1, 1, KernelArgs.NONE)
          .barrier()
          .launch(end, 1, 1, KernelArgs.NONE)
          .run()
          .subscribe()
          .dispose();
    }
    RankGroup.closeAll(groups);
    assertThat(finished).hasValue(2);
  }

  private static void sleep() {
    LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(1));
  }

  @Test
  void shouldNameTheJobIfACallIsRefused() {
    List<RankGroup> groups =
        RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST).withName("chat"));
    RankGroup group = groups.get(0);
    Mono<Void> run = group.collectives().barrier();
    group.collectives().close();
    assertThatThrownBy(() -> run.block(LONG))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("job chat: ");
    group.close();
  }

  @Test
  void shouldCloseOnABlockingThread() {
    Queue<String> threads = new ConcurrentLinkedQueue<>();
    List<RankGroup> groups =
        local(
            2,
            new FakeFamily("fake") {
              @Override
              public void close() {
                threads.add(Thread.currentThread().getName());
              }
            });
    List<CompletableFuture<Void>> closing = new ArrayList<>();
    groups.forEach(group -> closing.add(group.closeAsync()));
    assertThat(closing).allSatisfy(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(threads).hasSize(2).allMatch(name -> name.startsWith("fluxccl-blocking"));
  }

  private static List<RankGroup> pair() {
    return RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
  }

  private static FluxCclException failureOf(CompletableFuture<Void> run) {
    assertThat(run).failsWithin(LONG);
    return FluxCclException.from(run.handle((done, failure) -> failure).join());
  }

  /** Creates ranks that record at each close of a lane whether the watched group has failed. */
  private static List<RankGroup> noting(AtomicReference<RankGroup> watched, Queue<Boolean> failed) {
    return local(
        2,
        new FakeFamily("fake") {
          @Override
          public void close() {
            failed.add(watched.get().communicator().failure() != null);
          }
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldNotifyAWaitingPeerBeforeTheClosingRankTimesOut(int closer) {
    Queue<Boolean> failed = new ConcurrentLinkedQueue<>();
    AtomicReference<RankGroup> waiting = new AtomicReference<>();
    List<RankGroup> groups = noting(waiting, failed);
    waiting.set(groups.get(1 - closer));
    CompletableFuture<Void> waits = waiting.get().collectives().barrier().toFuture();
    assertThat(groups.get(closer).closeAsync()).succeedsWithin(LONG);
    FluxCclException failure = failureOf(waits);
    assertThat(failure).isInstanceOf(RemoteFailure.class).hasMessageContaining("left after 0");
    assertThat(failure.rank()).isEqualTo(closer);
    assertThat(failed).isNotEmpty().doesNotContain(false);
    RankGroup.closeAll(groups);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldNotifyAPeerThatWaitsInASubGroupIfTheParentCloses(int closer) {
    Queue<Boolean> failed = new ConcurrentLinkedQueue<>();
    AtomicReference<RankGroup> waiting = new AtomicReference<>();
    List<RankGroup> groups = noting(waiting, failed);
    List<CompletableFuture<Optional<RankGroup>>> parts =
        groups.stream().map(group -> group.split("part", 0, 0)).toList();
    waiting.set(parts.get(1 - closer).join().orElseThrow());
    CompletableFuture<Void> waits = waiting.get().collectives().barrier().toFuture();
    parts.get(closer).join();
    assertThat(groups.get(closer).closeAsync()).succeedsWithin(LONG);
    assertThat(failureOf(waits)).isInstanceOf(RemoteFailure.class);
    assertThat(failed).isNotEmpty().doesNotContain(false);
    RankGroup.closeAll(groups);
  }

  @Test
  void shouldFailThePeersWithTheExceptionOfTheBody() {
    List<RankGroup> groups = pair();
    CompletableFuture<Void> waits = groups.get(0).collectives().barrier().toFuture();
    IOException thrown = new IOException("disk full");
    assertThatThrownBy(
            () ->
                groups
                    .get(1)
                    .run(
                        group -> {
                          throw thrown;
                        }))
        .isSameAs(thrown);
    FluxCclException failure = failureOf(waits);
    assertThat(failure).isInstanceOf(Aborted.class).hasMessageContaining("disk full");
    assertThat(failure.rank()).isEqualTo(1);
    RankGroup.closeAll(groups);
  }

  private interface Body {
    void run(RankGroup group, int failing) throws Exception;
  }

  /** The body closes the calls for which the other rank waits before its group aborts. */
  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailNamedCallsOfPeersWithTheExceptionOfTheBody(int failing) {
    expectExceptionOfBody(failing, RankGroupClosingTest::callByName);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailRunsOfALaneOfPeersWithTheExceptionOfTheBody(int failing) {
    expectExceptionOfBody(failing, RankGroupClosingTest::callOnALane);
  }

  private static void expectExceptionOfBody(int failing, Body body) {
    List<RankGroup> groups = pair();
    List<CompletableFuture<Void>> runs =
        groups.stream().map(group -> run(group, failing, body)).toList();
    assertThat(runs.get(failing)).failsWithin(LONG);
    FluxCclException failure = failureOf(runs.get(1 - failing));
    assertThat(failure).isInstanceOf(Aborted.class).hasMessageContaining("disk full");
    assertThat(failure.rank()).isEqualTo(failing);
    RankGroup.closeAll(groups);
  }

  private static CompletableFuture<Void> run(RankGroup group, int failing, Body body) {
    return Mono.<Void>fromCallable(
            () -> {
              group.run(same -> body.run(same, failing));
              return null;
            })
        .subscribeOn(Schedulers.boundedElastic())
        .toFuture();
  }

  private static void callOnALane(RankGroup group, int failing) throws IOException {
    try (Collectives lane = group.collectives().lane("own").join()) {
      lane.barrier().block(LONG);
      if (group.rank() == failing) {
        throw new IOException("disk full");
      }
      lane.barrier().block(LONG);
    }
  }

  private static void callByName(RankGroup group, int failing) throws IOException {
    try (NamedCollectives named = group.collectives().named().join()) {
      named.barrier("first").block(LONG);
      if (group.rank() == failing) {
        throw new IOException("disk full");
      }
      named.barrier("second").block(LONG);
    }
  }

  @Test
  void shouldFailThePeersWithTheErrorOfTheMono() {
    List<RankGroup> groups = pair();
    CompletableFuture<Void> waits = groups.get(0).collectives().barrier().toFuture();
    Mono<String> body = groups.get(1).run(Mono.error(new IOException("disk full")));
    assertThatThrownBy(() -> body.block(LONG)).hasRootCauseMessage("disk full");
    assertThat(groups.get(1).closing.closed()).isCompleted();
    assertThat(failureOf(waits)).isInstanceOf(Aborted.class).hasMessageContaining("disk full");
    RankGroup.closeAll(groups);
  }

  @Test
  void shouldCloseTheGroupAfterABodyAndReturnTheResultOfAMono() {
    List<RankGroup> groups = pair();
    CompletableFuture<String> first =
        groups.get(0).run(groups.get(0).collectives().barrier().thenReturn("done")).toFuture();
    groups.get(1).run(group -> group.collectives().barrier().block(LONG));
    assertThat(first).succeedsWithin(LONG).isEqualTo("done");
    assertThat(groups)
        .allSatisfy(group -> assertThat(group.closing.closed()).succeedsWithin(LONG))
        .allMatch(group -> group.communicator().isClosed());
  }

  @Test
  void shouldRefuseToCloseOnTheCompletingThread() {
    List<RankGroup> groups = pair();
    RankGroup first = groups.get(0);
    // Rank 0 waits for rank 1, so its calls complete on a thread of the library.
    Mono<Void> barrier = first.collectives().barrier();
    CompletableFuture<Void> ofGroup = barrier.doOnSuccess(done -> first.close()).toFuture();
    groups.get(1).collectives().barrier().block(LONG);
    assertThat(failureOf(ofGroup))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closeAsync");
    assertThat(groups).noneMatch(group -> group.closing.hasBegun());
    CompletableFuture<Void> ofAll =
        barrier.doOnSuccess(done -> RankGroup.closeAll(groups)).toFuture();
    groups.get(1).collectives().barrier().block(LONG);
    CompletableFuture<Void> ofBootstrap =
        barrier.doOnSuccess(done -> first.bootstrap().close()).toFuture();
    groups.get(1).collectives().barrier().block(LONG);
    assertThat(failureOf(ofAll)).isInstanceOf(InvalidUsage.class);
    assertThat(failureOf(ofBootstrap)).isInstanceOf(InvalidUsage.class);
    assertThat(groups).noneMatch(group -> group.closing.hasBegun());
    RankGroup.closeAll(groups);
  }
}
