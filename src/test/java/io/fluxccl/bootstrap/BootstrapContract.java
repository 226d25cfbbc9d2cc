// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** The contract of all bootstraps, over any transport of messages. */
@org.junit.jupiter.api.Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
abstract class BootstrapContract {
  static final int LIMIT = 1 << 16;

  private final List<Bootstrap> open = Collections.synchronizedList(new ArrayList<>());

  /** Returns ranks that are set up, with a message limit of {@link #LIMIT}. */
  abstract List<? extends Bootstrap> makeGroup(int nRanks);

  /** Ends a rank as if its process had died. */
  abstract CompletableFuture<Void> kill(Bootstrap bootstrap);

  final List<? extends Bootstrap> group(int nRanks) {
    List<? extends Bootstrap> group = makeGroup(nRanks);
    open.addAll(group);
    return group;
  }

  @AfterEach
  void closeAll() {
    await(onAll(open, Bootstrap::closeAsync));
  }

  static Deadline soon() {
    return Deadline.after(Duration.ofSeconds(40));
  }

  static Deadline in(long millis) {
    return Deadline.after(Duration.ofMillis(millis));
  }

  static <B extends Bootstrap, T> List<CompletableFuture<T>> onAll(
      List<B> group, Function<B, CompletableFuture<T>> operation) {
    return List.copyOf(group).stream().map(operation).collect(Collectors.toList());
  }

  static <T> List<T> await(List<CompletableFuture<T>> futures) {
    return futures.stream().map(BootstrapContract::await).collect(Collectors.toList());
  }

  static <T> T await(CompletableFuture<T> future) {
    return future.orTimeout(50, SECONDS).join();
  }

  /** Returns why a rank's job has failed. */
  static FluxCclException reasonOf(Bootstrap rank) {
    return await(rank.failure().copy());
  }

  /** Asserts that a failure is the loss of this rank. */
  static void assertLost(FluxCclException reason, int rank) {
    assertThat(reason).isInstanceOf(RemoteFailure.class);
    assertThat(reason.rank()).isEqualTo(rank);
  }

  private static CompletableFuture<List<byte[]>> gather(Bootstrap rank, String text) {
    return rank.allGather(bytes(text), soon());
  }

  private static byte[] bytes(String text) {
    return text.getBytes(UTF_8);
  }

  @Test
  void shouldGatherMessagesOfDifferentLengthsByRank() {
    List<? extends Bootstrap> ranks = group(5);
    for (String mark : List.of("x0", "x1", "x2")) {
      for (List<byte[]> all : await(onAll(ranks, each -> gather(each, mark.repeat(each.rank()))))) {
        assertThat(all).hasSize(5);
        for (int rank = 0; rank < 5; rank++) {
          assertThat(all.get(rank)).isEqualTo(bytes(mark.repeat(rank)));
        }
      }
    }
  }

  @Test
  void shouldKeepConcurrentGathersApart() {
    List<? extends Bootstrap> ranks = group(3);
    List<CompletableFuture<List<byte[]>>> first =
        onAll(ranks, each -> gather(each, "a" + each.rank()));
    List<CompletableFuture<List<byte[]>>> second =
        onAll(ranks, each -> gather(each, "b" + each.rank()));
    await(second)
        .forEach(all -> assertThat(all).containsExactly(bytes("b0"), bytes("b1"), bytes("b2")));
    await(first)
        .forEach(all -> assertThat(all).containsExactly(bytes("a0"), bytes("a1"), bytes("a2")));
  }

  @Test
  void shouldExchangeByTagIfRanksStartInDifferentOrders() {
    List<? extends Bootstrap> ranks = group(3);
    List<List<CompletableFuture<List<byte[]>>>> byTag =
        List.of(new ArrayList<>(), new ArrayList<>());
    for (Bootstrap each : ranks) {
      for (int tag : each.rank() == 1 ? new int[] {1, 0} : new int[] {0, 1}) {
        byTag.get(tag).add(each.exchange(tag, bytes(tag + "of" + each.rank()), soon()));
      }
    }
    for (int tag = 0; tag < 2; tag++) {
      for (List<byte[]> all : await(byTag.get(tag))) {
        assertThat(all).containsExactly(bytes(tag + "of0"), bytes(tag + "of1"), bytes(tag + "of2"));
      }
    }
    await(onAll(ranks, each -> each.exchange(1, bytes("again" + each.rank()), soon())))
        .forEach(all -> assertThat(all.get(2)).isEqualTo(bytes("again2")));
  }

  @Test
  void shouldNameTheRankThatTakesNoPartInAnExchange() {
    List<? extends Bootstrap> ranks = group(3);
    onAll(ranks.subList(0, 2), each -> each.exchange(4, bytes("x"), in(1000)))
        .forEach(each -> assertFails(each, Timeout.class, "exchange(tag=4)", "rank 2"));
    await(onAll(ranks, each -> each.exchange(5, bytes("y"), soon())));
  }

  @Test
  void shouldNameAllRanksThatTakeNoPartOnEveryRank() {
    List<? extends Bootstrap> ranks = group(5);
    List<Bootstrap> here = List.of(ranks.get(0), ranks.get(2), ranks.get(4));
    for (CompletableFuture<?> each : onAll(here, rank -> rank.barrier(in(1000)))) {
      assertThat(assertFails(each, Timeout.class, "ranks [1, 3]").rank()).isEqualTo(1);
    }
    // The leader has timed out; its notice arrived before the late ranks called.
    assertFails(ranks.get(1).barrier(soon()), Timeout.class, "ranks [1, 3]");
    assertFails(ranks.get(2).barrier(in(200)), Timeout.class, "rank 0");
  }

  @Test
  void shouldGatherBlocksThatFillSeveralMessages() {
    List<? extends Bootstrap> ranks = group(40);
    for (List<byte[]> all :
        await(onAll(ranks, each -> each.allGather(longBlock(each.rank()), soon())))) {
      for (int rank = 0; rank < 40; rank++) {
        assertThat(all.get(rank)).isEqualTo(longBlock(rank));
      }
    }
  }

  private static byte[] longBlock(int rank) {
    byte[] block = new byte[LIMIT - rank];
    Arrays.fill(block, (byte) rank);
    return block;
  }

  private static void send(
      List<? extends Bootstrap> ranks, int from, int to, int tag, String text) {
    await(ranks.get(from).send(to, tag, bytes(text), soon()));
  }

  private static void assertReceives(
      List<? extends Bootstrap> ranks, int to, int from, int tag, String text) {
    assertThat(await(ranks.get(to).recv(from, tag, soon()))).isEqualTo(bytes(text));
  }

  @Test
  void shouldMatchTagsWhenMessagesAreReceivedOutOfOrder() {
    List<? extends Bootstrap> ranks = group(2);
    for (int tag : new int[] {7, -1, Integer.MAX_VALUE}) {
      send(ranks, 0, 1, tag, "first " + tag);
      send(ranks, 0, 1, tag, "second " + tag);
    }
    for (int tag : new int[] {Integer.MAX_VALUE, 7, -1}) {
      assertReceives(ranks, 1, 0, tag, "first " + tag);
    }
    for (int tag : new int[] {-1, Integer.MAX_VALUE, 7}) {
      assertReceives(ranks, 1, 0, tag, "second " + tag);
    }
  }

  @Test
  void shouldDeliverInReceiveOrderIfReceivesWerePostedFirst() {
    List<? extends Bootstrap> ranks = group(2);
    CompletableFuture<byte[]> one = ranks.get(1).recv(0, 3, soon());
    CompletableFuture<byte[]> two = ranks.get(1).recv(0, 3, soon());
    ranks.get(0).send(1, 3, bytes("1"), soon());
    ranks.get(0).send(1, 3, bytes("2"), soon());
    assertThat(await(one)).isEqualTo(bytes("1"));
    assertThat(await(two)).isEqualTo(bytes("2"));
  }

  @Test
  void shouldSendToItselfAndSendEmptyMessages() {
    List<? extends Bootstrap> ranks = group(2);
    CompletableFuture<byte[]> received = ranks.get(0).recv(0, 1, soon());
    send(ranks, 0, 0, 1, "me");
    assertThat(await(received)).isEqualTo(bytes("me"));
    send(ranks, 0, 1, 1, "");
    assertReceives(ranks, 1, 0, 1, "");
  }

  @Test
  void shouldCarryMessagesUpToTheLimitAndRefuseLongerOnes() {
    List<? extends Bootstrap> ranks = group(2);
    Bootstrap first = ranks.get(0);
    byte[] longest = new byte[LIMIT];
    longest[LIMIT - 1] = 42;
    first.send(1, 1, longest, soon());
    assertThat(await(ranks.get(1).recv(0, 1, soon()))).isEqualTo(longest);
    byte[] longer = new byte[LIMIT + 1];
    assertFails(first.send(1, 1, longer, soon()), InvalidUsage.class, "limit");
    assertFails(first.allGather(longer, soon()), InvalidUsage.class);
    assertFails(first.send(2, 1, longest, soon()), InvalidUsage.class, "rank=2");
    assertRefused(() -> first.hostHash(2));
  }

  @Test
  void shouldStayInSequenceIfAnOperationIsRefused() {
    List<? extends Bootstrap> ranks = group(2);
    Bootstrap refused = ranks.get(0);
    Bootstrap other = ranks.get(1);
    List.of(
            refused.allGather(new byte[LIMIT + 1], soon()),
            refused.allGather(null, soon()),
            refused.broadcast(0, null, soon()),
            refused.broadcast(2, null, soon()))
        .forEach(refusal -> assertFails(refusal, InvalidUsage.class));
    List.of(
            other.allGather(bytes("a"), in(100)),
            other.allGather(bytes("b"), in(100)),
            other.broadcast(0, null, in(100)),
            other.broadcast(0, null, in(100)))
        .forEach(waiting -> assertFails(waiting, Timeout.class));
    CompletableFuture<Void> early = refused.barrier(soon());
    // Messages sent after the gathers arrive after them.
    send(ranks, 1, 0, 9, "x");
    assertReceives(ranks, 0, 1, 9, "x");
    assertThat(early).isNotDone();
    await(other.barrier(soon()));
    await(early);
    await(onAll(ranks, each -> gather(each, "" + each.rank())))
        .forEach(each -> assertThat(each).containsExactly(bytes("0"), bytes("1")));
  }

  @Test
  void shouldHoldTheBarrierUntilTheLastRankEnters() {
    List<? extends Bootstrap> ranks = group(4);
    List<CompletableFuture<Void>> early = onAll(ranks.subList(0, 3), each -> each.barrier(soon()));
    // Messages that rank 3 sends before it enters arrive before any other rank passes.
    for (int rank = 0; rank < 3; rank++) {
      send(ranks, 3, rank, 9, "x");
      assertReceives(ranks, rank, 3, 9, "x");
    }
    assertThat(early).noneMatch(CompletableFuture::isDone);
    await(ranks.get(3).barrier(soon()));
    await(early);
  }

  @Test
  void shouldHoldTheGroupBarrierForItsRanksOnly() {
    List<? extends Bootstrap> ranks = group(4);
    List<Integer> some = List.of(3, 1);
    for (int round = 0; round < 3; round++) {
      CompletableFuture<Void> first = ranks.get(1).groupBarrier(some, soon());
      assertThat(first).isNotDone();
      await(ranks.get(3).groupBarrier(some, soon()));
      await(first);
    }
    await(ranks.get(2).groupBarrier(List.of(2), soon()));
    assertFails(ranks.get(0).groupBarrier(some, soon()), InvalidUsage.class);
    assertFails(ranks.get(0).groupBarrier(List.of(0, 0), soon()), InvalidUsage.class);
  }

  @Test
  void shouldBroadcastFromAnyRankEvenBeforeTheOthersAsk() {
    List<? extends Bootstrap> ranks = group(4);
    for (int root = 0; root < 4; root++) {
      byte[] message = bytes("from " + root);
      assertThat(await(ranks.get(root).broadcast(root, message, soon()))).isEqualTo(message);
      for (Bootstrap each : ranks) {
        if (each.rank() != root) {
          assertThat(await(each.broadcast(root, null, soon()))).isEqualTo(message);
        }
      }
    }
  }

  @Test
  void shouldReportRanksOfOneHostAndProcess() {
    for (Bootstrap each : group(3)) {
      assertThat(each.nRanksPerNode()).isEqualTo(3);
      assertThat(each.localRank()).isEqualTo(each.rank());
      assertThat(each.hostHash(0)).isEqualTo(each.hostHash(2));
      assertThat(each.processHash(0)).isEqualTo(HostIdentity.current().processHash());
      assertThat(each.hostAddress()).isNotNull();
    }
  }

  @Test
  void shouldCompleteOperationsOfASingleRank() {
    Bootstrap alone = group(1).get(0);
    assertThat(await(gather(alone, "a"))).containsExactly(bytes("a"));
    await(alone.barrier(soon()));
    assertThat(await(alone.broadcast(0, bytes("b"), soon()))).isEqualTo(bytes("b"));
  }

  @Test
  void shouldTimeOutAfterTheDeadlineNamingTheRankThatIsLate() {
    List<? extends Bootstrap> ranks = group(3);
    long start = System.nanoTime();
    List<CompletableFuture<?>> waiting =
        List.of(
            ranks.get(0).recv(2, 5, in(500)),
            ranks.get(0).barrier(in(500)),
            ranks.get(1).barrier(in(500)));
    for (CompletableFuture<?> each : waiting) {
      assertThat(assertFails(each, Timeout.class, "rank 2", "500 ms").rank()).isEqualTo(2);
    }
    assertThat(Duration.ofNanos(System.nanoTime() - start))
        .isGreaterThanOrEqualTo(Duration.ofMillis(490));
    // Other operations still work, and the timed-out receive has taken no message.
    ranks.get(2).send(0, 5, bytes("late"), soon());
    assertReceives(ranks, 0, 2, 5, "late");
    await(ranks.get(2).barrier(in(100)).exceptionally(late -> null));
    await(onAll(ranks, each -> each.barrier(soon())));
  }

  @Test
  void shouldLoseNoMessageWhenAReceiveIsCancelled() {
    List<? extends Bootstrap> ranks = group(2);
    CompletableFuture<byte[]> cancelled = ranks.get(1).recv(0, 1, soon());
    CompletableFuture<byte[]> kept = ranks.get(1).recv(0, 1, soon());
    cancelled.cancel(true);
    ranks.get(0).send(1, 1, bytes("hello"), soon());
    assertThat(await(kept)).isEqualTo(bytes("hello"));
  }

  @Test
  void shouldCompleteAGatherOnOtherRanksIfOneCancels() {
    List<? extends Bootstrap> ranks = group(4);
    List<CompletableFuture<List<byte[]>>> all =
        onAll(ranks.subList(0, 3), each -> gather(each, "x"));
    all.get(1).cancel(true);
    assertThat(await(gather(ranks.get(3), "y"))).hasSize(4);
    assertThat(await(all.get(0))).hasSize(4);
    await(onAll(ranks, each -> each.barrier(soon())));
  }

  @Test
  void shouldNameTheDeadRankEverywhere() {
    List<? extends Bootstrap> ranks = group(4);
    List<CompletableFuture<?>> waiting = new ArrayList<>();
    for (int rank : new int[] {0, 1, 3}) {
      waiting.add(ranks.get(rank).recv(2, 1, soon()));
      waiting.add(ranks.get(rank).barrier(soon()));
    }
    send(ranks, 0, 1, 8, "still here");
    await(kill(ranks.get(2)));
    waiting.forEach(each -> assertLost(failureOf(each), 2));
    for (int rank : new int[] {0, 1, 3}) {
      assertLost(reasonOf(ranks.get(rank)), 2);
      // New operations with any peer fail at once.
      assertThat(failureOf(ranks.get(rank).send(rank, 0, new byte[0], soon())).rank()).isEqualTo(2);
      assertThat(failureOf(gather(ranks.get(rank), "")).rank()).isEqualTo(2);
    }
  }

  @Test
  void shouldNameTheRootWhenItDies() {
    List<? extends Bootstrap> ranks = group(3);
    await(kill(ranks.get(0)));
    ranks.subList(1, 3).forEach(each -> assertLost(reasonOf(each), 0));
  }

  @Test
  void shouldNoticeADeathAfterTheRootAndOthersHaveLeft() {
    List<? extends Bootstrap> ranks = group(6);
    await(onAll(ranks, each -> each.barrier(soon())));
    // After ranks 0, 2 and 4 have left, no two remaining ranks are neighbours in the ring.
    for (int rank : new int[] {0, 2, 4}) {
      await(ranks.get(rank).closeAsync());
    }
    List<Integer> rest = List.of(1, 3, 5);
    await(onAll(rest.stream().map(ranks::get).toList(), each -> each.groupBarrier(rest, soon())));
    await(kill(ranks.get(3)));
    assertThat(reasonOf(ranks.get(1)).rank()).isEqualTo(3);
    assertThat(reasonOf(ranks.get(5)).rank()).isEqualTo(3);
  }

  @Test
  void shouldCarryTheReasonOfAnAbortToAll() {
    List<? extends Bootstrap> ranks = group(3);
    CompletableFuture<byte[]> waiting = ranks.get(2).recv(0, 1, soon());
    ranks.get(1).abort(new Timeout(2, "allReduce waited for rank 2"));
    ranks.get(1).abort(new Aborted(1, "too late"));
    for (Bootstrap each : ranks) {
      FluxCclException reason = reasonOf(each);
      assertThat(reason.code()).isEqualTo(ErrorCode.TIMEOUT);
      assertThat(reason.rank()).isEqualTo(2);
      assertThat(reason).hasMessageEndingWith("allReduce waited for rank 2");
    }
    assertFails(waiting, Timeout.class);
  }

  @Test
  void shouldShortenTheReasonOfAnAbortWhenItIsVeryLong() {
    List<? extends Bootstrap> ranks = group(2);
    ranks.get(0).abort(new DeviceFailure(700, "X", "ü".repeat(1 << 20)));
    FluxCclException reason = reasonOf(ranks.get(1));
    assertThat(reason.code()).isEqualTo(ErrorCode.DEVICE_FAILURE);
    assertThat(reason.getMessage().length()).isBetween(1000, 5000);
  }

  @Test
  void shouldNotLetCallersCompleteTheFailure() {
    List<? extends Bootstrap> ranks = group(2);
    CompletableFuture<FluxCclException> failure = ranks.get(0).failure();
    failure.cancel(true);
    failure.complete(new Aborted(0, "not so"));
    assertThat(ranks.get(0).failure()).isNotDone();
    await(ranks.get(0).barrier(in(10)).exceptionally(late -> null));
  }

  @Test
  void shouldDeliverMessagesThatADepartedRankSent() {
    List<? extends Bootstrap> ranks = group(3);
    await(onAll(ranks, each -> each.barrier(soon())));
    CompletableFuture<byte[]> first = ranks.get(0).recv(2, 1, soon());
    CompletableFuture<byte[]> never = ranks.get(0).recv(2, 4, soon());
    CompletableFuture<Void> sent = ranks.get(2).send(0, 1, bytes("1"), soon());
    ranks.get(2).send(0, 2, bytes("2"), soon());
    ranks.get(2).send(1, 2, new byte[LIMIT], soon());
    await(ranks.get(2).closeAsync());
    await(sent);
    assertThat(await(first)).isEqualTo(bytes("1"));
    assertReceives(ranks, 0, 2, 2, "2");
    assertThat(await(ranks.get(1).recv(2, 2, soon()))).hasSize(LIMIT);
    assertFails(never, RemoteFailure.class);
    assertThat(failureOf(ranks.get(0).recv(2, 3, soon())).rank()).isEqualTo(2);
    assertThat(failureOf(ranks.get(1).send(2, 3, new byte[0], soon())).rank()).isEqualTo(2);
    assertThat(ranks.get(0).failure()).isNotDone();
    assertThat(ranks.get(1).failure()).isNotDone();
  }

  @Test
  void shouldFailTheGatherOfAllWhenOneHasLeftInsteadOfJoining() {
    List<? extends Bootstrap> ranks = group(5);
    List<CompletableFuture<Void>> waiting =
        onAll(ranks.subList(0, 4), each -> each.barrier(soon()));
    await(ranks.get(4).closeAsync());
    waiting.forEach(each -> assertLost(failureOf(each), 4));
    assertThat(ranks.get(0).failure()).isNotDone();
  }

  @Test
  void shouldEndEverythingWithAbortedWhenItIsClosed() {
    List<? extends Bootstrap> ranks = group(2);
    Bootstrap closed = ranks.get(0);
    List<CompletableFuture<?>> waiting = List.of(closed.recv(1, 1, soon()), closed.barrier(soon()));
    closed.close();
    closed.close();
    waiting.forEach(each -> assertFails(each, Aborted.class));
    assertFails(closed.barrier(soon()), Aborted.class);
    assertThat(reasonOf(closed)).isInstanceOf(Aborted.class);
    assertThat(ranks.get(1).failure()).isNotDone();
  }

  @Test
  void shouldCloseFromItsOwnThreadWithoutWaitingForItself() {
    List<? extends Bootstrap> ranks = group(2);
    CompletableFuture<Void> closed =
        ranks.get(0).recv(1, 1, soon()).thenAccept(message -> ranks.get(0).close());
    ranks.get(1).send(0, 1, new byte[0], soon());
    await(closed);
    await(ranks.get(0).closeAsync());
  }

  @Test
  void shouldNotReportDeparturesAsFailures() {
    for (int round = 0; round < Rounds.of(10, 50); round++) {
      List<? extends Bootstrap> ranks = makeGroup(4);
      List<CompletableFuture<FluxCclException>> failures = onAll(ranks, Bootstrap::failure);
      // In even rounds each rank leaves as soon as it has passed the barrier; in odd rounds all
      // ranks leave at once.
      List<CompletableFuture<Void>> passed = onAll(ranks, each -> each.barrier(soon()));
      if (round % 2 == 1) {
        await(passed);
      }
      await(onAll(ranks, each -> passed.get(each.rank()).thenCompose(done -> each.closeAsync())));
      for (CompletableFuture<FluxCclException> each : failures) {
        assertThat(each).isDone();
        assertThat(each.getNow(null)).isInstanceOf(Aborted.class);
      }
    }
  }
}
