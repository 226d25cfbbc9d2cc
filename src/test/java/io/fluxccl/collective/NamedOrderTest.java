// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ErrorCode;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.NamedOrder.Announcement;
import io.fluxccl.collective.NamedOrder.Failure;
import io.fluxccl.collective.NamedOrder.Verdicts;
import io.fluxccl.testing.Rounds;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The order of named calls, without ranks. */
class NamedOrderTest {
  private static final long LIMIT = 100;
  private static final long WHAT = 1;
  private static final int COUNT = 5;
  private static final NamedOptions SINGLE = NamedOptions.DEFAULT.withBucketBytes(0);

  /** The verdicts on each rank, in their order. */
  private final Map<Integer, List<String>> verdicts = new HashMap<>();

  private final List<Failure> failures = new ArrayList<>();

  private final Verdicts recorder =
      new Verdicts() {
        @Override
        public void begin(int rank, List<Long> numbers) {
          String all = numbers.stream().map(String::valueOf).collect(Collectors.joining(" "));
          verdicts.computeIfAbsent(rank, any -> new ArrayList<>()).add("begin " + all);
        }

        @Override
        public void fail(int rank, long number, Failure failure) {
          verdicts.computeIfAbsent(rank, any -> new ArrayList<>()).add("fail " + number);
          failures.add(failure);
        }
      };

  private static Announcement call(String name, long number, long count) {
    return new Announcement(name, number, WHAT, count, LIMIT);
  }

  private static Announcement call(String name, long number) {
    return call(name, number, COUNT);
  }

  private List<String> of(int rank) {
    return verdicts.getOrDefault(rank, List.of());
  }

  @Test
  void shouldBeginACallWhenAllRanksHaveAnnouncedIt() {
    NamedOrder order = new NamedOrder(2, SINGLE, recorder);
    order.announced(0, call("a", 0), 0);
    order.announced(0, call("b", 1), 0);
    assertThat(verdicts).isEmpty();
    order.announced(1, call("b", 0), 0);
    order.announced(1, call("a", 1), 0);
    assertThat(of(0)).containsExactly("begin 1", "begin 0");
    assertThat(of(1)).containsExactly("begin 0", "begin 1");
    assertThat(order.openCalls()).isZero();
  }

  @Test
  void shouldMatchRepeatedNamesByTheirNumber() {
    NamedOrder order = new NamedOrder(2, SINGLE, recorder);
    order.announced(0, call("a", 0), 0);
    order.announced(0, call("a", 1), 0);
    order.announced(1, call("a", 0), 0);
    assertThat(of(0)).containsExactly("begin 0");
    order.announced(1, call("a", 1), 0);
    assertThat(of(0)).containsExactly("begin 0", "begin 1");
  }

  @Test
  void shouldFailLateCallsOnAllRanksAndMatchRetries() {
    NamedOrder order = new NamedOrder(3, SINGLE, recorder);
    order.announced(0, call("a", 0), 0);
    order.announced(2, call("a", 0), 50);
    assertThat(order.tick(LIMIT - 1)).isZero();
    assertThat(order.tick(LIMIT)).isEqualTo(1);
    assertThat(failures.get(0).code()).isEqualTo(ErrorCode.TIMEOUT);
    assertThat(failures.get(0).rank()).isEqualTo(1);
    assertThat(failures.get(0).text()).contains("'a'", "ranks [1] have not", "ranks [0, 2] have");
    order.announced(1, call("a", 1), 200);
    assertThat(of(1)).as("nobody has repeated the call").containsExactly("fail 1");
    for (int rank = 0; rank < 3; rank++) {
      order.announced(rank, call("a", 2), 200);
    }
    assertThat(of(0)).containsExactly("fail 0", "begin 2");
    assertThat(of(1)).containsExactly("fail 1", "begin 2");
    assertThat(of(2)).containsExactly("fail 0", "begin 2");
    assertThat(order.openCalls()).isZero();
    assertThat(order.tick(Long.MAX_VALUE)).isZero();
  }

  @Test
  void shouldMatchALateRankWithTheLatestRepetition() {
    NamedOrder order = new NamedOrder(2, SINGLE, recorder);
    for (int attempt = 0; attempt < 3; attempt++) {
      order.announced(0, call("a", attempt), attempt * 2 * LIMIT);
      order.tick((attempt + 1) * 2 * LIMIT - 1);
    }
    order.announced(0, call("a", 3), 6 * LIMIT);
    order.announced(1, call("a", 0), 6 * LIMIT);
    assertThat(of(0)).containsExactly("fail 0", "fail 1", "fail 2", "begin 3");
    assertThat(of(1)).containsExactly("begin 0");
    assertThat(order.openCalls()).isZero();
  }

  @Test
  void shouldShowBothCallsThatDiffer() {
    NamedOrder order = new NamedOrder(3, SINGLE, recorder);
    order.announced(1, call("a", 0), 0);
    order.announced(0, call("a", 0, COUNT + 1), 0);
    order.announced(2, call("a", 0), 0);
    assertThat(failures).hasSize(3).allMatch(each -> each.code() == ErrorCode.INVALID_USAGE);
    assertThat(failures.get(2).text()).contains("rank 1 calls", "count=5", "rank 0", "count=6");
    assertThat(order.openCalls()).isZero();
  }

  @Test
  void shouldFailCallsThatWaitForARankThatHasLeft() {
    NamedOrder order = new NamedOrder(2, SINGLE, recorder);
    order.announced(0, call("a", 0), 0);
    order.announced(1, call("c", 0), 0);
    order.left(1);
    order.announced(0, call("b", 1), 0);
    order.announced(0, call("c", 2), 0);
    assertThat(of(0)).containsExactly("fail 0", "fail 1", "fail 2");
    assertThat(of(1)).isEmpty();
    assertThat(failures).allMatch(each -> each.code() == ErrorCode.ABORTED && each.rank() == 1);
  }

  @Test
  void shouldWaitForEverWithoutALimit() {
    NamedOrder order = new NamedOrder(2, SINGLE, recorder);
    order.announced(0, new Announcement("a", 0, WHAT, COUNT, Long.MAX_VALUE), 1);
    assertThat(order.tick(Long.MAX_VALUE - 1)).isZero();
    assertThat(verdicts).isEmpty();
  }

  @Test
  void shouldForgetTheOldestOfManyFailedCallsThatARankNeverAnnounces() {
    NamedOrder order = new NamedOrder(3, SINGLE, recorder);
    int calls = NamedOrder.MOST_FAILED + 5;
    for (int i = 0; i < calls; i++) {
      String name = i % 2 == 0 ? "a" : "name " + i;
      order.announced(0, call(name, i), 0);
      order.announced(1, call(name, i, COUNT + 1), 0);
    }
    assertThat(failures).hasSize(2 * calls);
    assertThat(order.openCalls()).isEqualTo(NamedOrder.MOST_FAILED);
    order.announced(2, call("name 3", 0), 0);
    assertThat(of(2)).as("forgotten").isEmpty();
    order.announced(2, call("name 5", 1), 0);
    assertThat(of(2)).containsExactly("fail 1");
    order.announced(0, call("name 3", calls), 0);
    order.announced(1, call("name 3", calls), 0);
    assertThat(of(2)).containsExactly("fail 1", "begin 0");
    order.announced(0, call("late", calls + 1), 0);
    assertThat(order.tick(LIMIT)).isEqualTo(1);
    assertThat(order.openCalls()).isEqualTo(NamedOrder.MOST_FAILED);
  }

  /** Names in random orders, which differ between ranks: all ranks begin the same ones alike. */
  @Test
  void shouldKeepOneOrderIfRanksAnnounceCallsInOthers() {
    Random random = new Random(Rounds.SEED);
    int nRanks = 4;
    int calls = 200;
    NamedOrder order = new NamedOrder(nRanks, SINGLE, recorder);
    List<List<String>> names = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      List<String> all = new ArrayList<>();
      for (int i = 0; i < calls; i++) {
        all.add("name " + i % 50);
      }
      Collections.shuffle(all, random);
      names.add(all);
    }
    int[] next = new int[nRanks];
    for (int i = 0; i < nRanks * calls; i++) {
      int rank = random.nextInt(nRanks);
      while (next[rank] == calls) {
        rank = (rank + 1) % nRanks;
      }
      order.announced(rank, call(names.get(rank).get(next[rank]), next[rank]++), 0);
    }
    List<String> first = begun(0, names.get(0));
    assertThat(first).hasSize(calls);
    for (int rank = 1; rank < nRanks; rank++) {
      assertThat(begun(rank, names.get(rank))).isEqualTo(first);
    }
    assertThat(order.openCalls()).isZero();
  }

  private List<String> begun(int rank, List<String> names) {
    return of(rank).stream()
        .map(verdict -> names.get(Integer.parseInt(verdict.substring("begin ".length()))))
        .toList();
  }

  // ---- buckets ----

  private static final long FLOATS =
      CallSignature.what(CollectiveCall.allReduce(null, null, 1, DataType.FLOAT32, ReduceOp.SUM));
  private static final long LARGEST =
      CallSignature.what(CollectiveCall.allReduce(null, null, 1, DataType.FLOAT32, ReduceOp.MAX));
  private static final int BUSY = NamedOrder.MOST_IN_FLIGHT;

  private static Announcement reduce(String name, long number, long what, long count) {
    return new Announcement(name, number, what, count, LIMIT);
  }

  private NamedOrder announced(NamedOptions options, Announcement... calls) {
    NamedOrder order = new NamedOrder(2, options, recorder);
    for (Announcement call : calls) {
      order.announced(0, call, 0);
      order.announced(1, call, 0);
    }
    return order;
  }

  @Test
  void shouldFuseAllReducesOfOneTypeAndOperation() {
    NamedOrder order =
        announced(
            NamedOptions.DEFAULT,
            reduce("a", 0, FLOATS, 10),
            reduce("b", 1, LARGEST, 10),
            reduce("c", 2, FLOATS, 1000),
            reduce("d", 3, LARGEST, 1));
    assertThat(verdicts).as("not before the end of the cycle").isEmpty();
    assertThat(order.decide(0)).isEqualTo(2);
    assertThat(of(0)).containsExactly("begin 0 2", "begin 1 3");
    assertThat(of(1)).isEqualTo(of(0));
    assertThat(order.hasReady()).isFalse();
  }

  @Test
  void shouldHoldAllReducesWhileOperationsAreInFlight() {
    NamedOrder order = announced(NamedOptions.DEFAULT, reduce("a", 0, FLOATS, 10));
    assertThat(order.decide(BUSY)).isZero();
    order.announced(0, reduce("b", 1, FLOATS, 10), 0);
    order.announced(1, reduce("b", 1, FLOATS, 10), 0);
    assertThat(order.decide(BUSY - 1)).isEqualTo(1);
    assertThat(of(1)).containsExactly("begin 0 1");
  }

  @Test
  void shouldBeginLargeAllReducesAloneAndLimitBuckets() {
    long most = NamedOptions.DEFAULT.memberBytes() / Float.BYTES;
    NamedOptions options = NamedOptions.DEFAULT.withBucketBytes(2L * most * Float.BYTES);
    NamedOrder order =
        announced(
            options,
            reduce("a", 0, FLOATS, 8),
            reduce("large", 1, FLOATS, most + 1),
            reduce("b", 2, FLOATS, most),
            reduce("c", 3, FLOATS, most),
            reduce("empty", 4, FLOATS, 0));
    order.decide(-BUSY);
    assertThat(of(0)).containsExactly("begin 0 2", "begin 1", "begin 3", "begin 4");
  }

  @Test
  void shouldLimitTheMembersOfABucket() {
    NamedOrder order = new NamedOrder(1, NamedOptions.DEFAULT, recorder);
    for (int i = 0; i <= NamedBuckets.MOST_MEMBERS; i++) {
      order.announced(0, reduce("name " + i, i, FLOATS, 1), 0);
    }
    assertThat(order.decide(0)).isEqualTo(2);
    assertThat(of(0).get(1)).isEqualTo("begin " + NamedBuckets.MOST_MEMBERS);
  }

  @Test
  void shouldBeginTheGreatestPriorityFirst() {
    NamedOrder order =
        announced(
            NamedOptions.DEFAULT.withPriority(name -> -Integer.parseInt(name)),
            reduce("2", 0, FLOATS, 10),
            reduce("1", 1, LARGEST, 10),
            reduce("3", 2, FLOATS, 10),
            reduce("1", 3, LARGEST, 10));
    order.decide(0);
    assertThat(of(0)).containsExactly("begin 1 3", "begin 0 2");
  }

  @Test
  void shouldBeginCallsIfTheirPriorityFunctionThrowsAnError() {
    NamedOptions options =
        NamedOptions.DEFAULT.withPriority(
            name -> {
              throw new StackOverflowError("as the test wants");
            });
    NamedOrder order = announced(options, reduce("a", 0, FLOATS, 10));
    assertThat(order.decide(0)).isEqualTo(1);
    assertThat(order.openCalls()).isZero();
  }

  @Test
  void shouldAskForThePriorityOfACallOnce() {
    List<String> asked = new ArrayList<>();
    NamedOptions options =
        NamedOptions.DEFAULT.withPriority(
            name -> {
              asked.add(name);
              return 0;
            });
    List<String> names = List.of("a", "b", "c", "d");
    NamedOrder order = new NamedOrder(1, options, recorder);
    for (String name : names) {
      order.announced(0, reduce(name, asked.size(), FLOATS, 10), 0);
    }
    order.decide(0);
    assertThat(asked).isEqualTo(names);
  }

  @Test
  void shouldBeginReadyCallsBeforeARankLeaves() {
    NamedOrder order =
        announced(NamedOptions.DEFAULT, reduce("a", 0, FLOATS, 10), reduce("b", 1, LARGEST, 10));
    order.decide(BUSY);
    order.announced(0, reduce("c", 2, FLOATS, 10), 0);
    order.left(1);
    assertThat(of(0)).containsExactly("begin 0", "begin 1", "fail 2");
    assertThat(of(1)).containsExactly("begin 0", "begin 1");
  }
}
