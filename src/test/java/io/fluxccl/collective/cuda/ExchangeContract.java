// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.DataType.UINT8;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;

/**
 * Collectives that only move bytes. Every byte of a rank's buffer is compared, which also detects
 * writes outside the output.
 */
@OnRanks(value = 4, seconds = 100)
abstract class ExchangeContract implements OnRanks.Opening, OnRanks.Placing {
  private static final Duration LONG = Duration.ofSeconds(100);

  /** Emulated GPUs are slow: without -Plong they test fewer rank counts, sizes and offsets. */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  private static final CollectivesOptions OPTIONS =
      CollectivesOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));

  private final CompletableFuture<Void> lastIsThere = new CompletableFuture<>();

  /** Returns the largest number of ranks. */
  abstract int most();

  @Override
  public LocalRanks ranks(int nRanks) {
    return LocalRanks.onGpus(Math.min(nRanks, most()));
  }

  @Override
  public Collectives open(LocalRank rank) {
    return open(rank, OPTIONS);
  }

  private static Collectives open(LocalRank rank, CollectivesOptions options) {
    return NearWrap.of(lane(rank, options));
  }

  private static RandomCollectiveCase bytes(
      LocalRank rank, Collective what, int count, boolean inPlace) {
    return new RandomCollectiveCase(new Random(count), rank.nRanks(), what, 8)
        .with(UINT8, count, inPlace);
  }

  /** Runs a call several times at once and compares all memory with the expected content. */
  private static void check(
      LocalRank rank,
      Collectives collectives,
      RandomCollectiveCase call,
      boolean registered,
      int times)
      throws Exception {
    try (DeviceBuffer memory = rank.device().allocate(call.memory())) {
      RandomCollectiveCase.Run run = call.on(rank.rank(), memory);
      Registration registration = registered ? collectives.register(memory).join() : null;
      List<CompletableFuture<Void>> runs = new ArrayList<>();
      Random skew = new Random(rank.rank());
      for (int i = 0; i < times; i++) {
        if (skew.nextInt(3) == 0) {
          TimeUnit.MICROSECONDS.sleep(skew.nextInt(500));
        }
        runs.add(collectives.run(run.call).toFuture());
      }
      for (CompletableFuture<Void> each : runs) {
        each.get(LONG.toSeconds(), TimeUnit.SECONDS);
      }
      run.verify();
      if (registered) {
        registration.close();
      }
    }
  }

  /** Checks calls out of place and in place, at different alignments. */
  static void checkAll(
      int nRanks, Collective what, String algorithm, boolean registered, int... counts) {
    boolean inPlaceToo =
        what != Collective.ALL_TO_ALL || !algorithm.matches("exchange-(push|copy)");
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, OPTIONS.withAlgorithm(what, algorithm))) {
              for (int count : counts) {
                for (int at : THIN ? new int[] {0, 1} : new int[] {0, 1, 4}) {
                  RandomCollectiveCase apart = bytes(rank, what, count, false).at(at, at * 6 % 8);
                  check(rank, collectives, apart, registered, 3);
                }
                for (int at : THIN && count == 1 ? new int[] {8} : new int[] {8, 3}) {
                  if (inPlaceToo) {
                    RandomCollectiveCase inPlace = bytes(rank, what, count, true).at(at, 0);
                    // An all-to-all in place would send its own output the second time.
                    int times = what == Collective.ALL_TO_ALL ? 1 : THIN ? 2 : 3;
                    check(rank, collectives, inPlace, registered, times);
                  }
                }
              }
            }
          });
    }
  }

  private void checkAllOnEach(
      Collective what, String algorithm, boolean registered, int... counts) {
    for (int nRanks = 2; nRanks <= most(); nRanks += THIN ? Math.max(1, most() - 2) : 1) {
      checkAll(nRanks, what, algorithm, registered, counts);
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"ALL_GATHER", "ALL_TO_ALL", "BROADCAST", "GATHER", "SCATTER"})
  void shouldMoveBytesOfAnyCountAndAlignmentByPackets(Collective what) {
    checkAllOnEach(what, "exchange-ll8", false, 1, 121, 5000);
    checkAllOnEach(what, "exchange-ll128", false, 1, 121, 5000);
  }

  @ParameterizedTest
  @EnumSource(names = {"ALL_GATHER", "ALL_TO_ALL", "BROADCAST"})
  void shouldStoreIntoRegisteredOutputs(Collective what) {
    checkAllOnEach(what, "exchange-push", true, 1, 130, 50_001);
  }

  @ParameterizedTest
  @EnumSource(names = {"ALL_GATHER", "ALL_TO_ALL"})
  void shouldLetCopyEnginesWriteIntoRegisteredOutputs(Collective what) {
    checkAll(most(), what, "exchange-copy", true, 1, 50_001);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldBroadcastBySpreadingParts(boolean registered) {
    checkAll(most(), Collective.BROADCAST, "exchange-spread", registered, 1, 300, 100_003);
  }

  /** So many bytes that a sender waits several times for the receiver's free space. */
  @ParameterizedTest
  @EnumSource(names = {"ALL_TO_ALL", "SCATTER"})
  @OnRanks(3)
  void shouldMoveMoreThanARingHolds(Collective what, LocalRank rank) throws Exception {
    int count = (int) (ExchangeRing.ll128(0, rank.nRanks()).eagerBytes() * 9 / 4 + 77);
    boolean isInPlace = what == Collective.ALL_TO_ALL;
    try (Collectives collectives = open(rank, OPTIONS.withAlgorithm(what, "exchange-ll128"))) {
      RandomCollectiveCase call = bytes(rank, what, count, isInPlace).at(0, isInPlace ? 0 : 8);
      check(rank, collectives, call, false, isInPlace ? 1 : 2);
    }
  }

  /** Messages of a pair on both sides of the length from which units have more rows. */
  @ParameterizedTest
  @CsvSource({"ALL_TO_ALL_V,exchange-ll128", "BROADCAST,exchange-spread"})
  @OnRanks(4)
  void shouldExchangeAMessageOfShortUnitsForOneOfLongUnits(
      Collective what, String algorithm, LocalRank rank) throws Exception {
    int nRanks = rank.nRanks();
    assumeTrue(nRanks > 2, "two ranks have no such broadcast, nor such messages");
    ExchangeRing ring = ExchangeRing.ll128(0, nRanks);
    int half = ring.slots() / 2 * ring.rowPayload();
    // Slices of a broadcast are longer than half a ring, except the last one.
    int count = what == Collective.BROADCAST ? half * nRanks + 128 : half + 2;
    try (Collectives collectives = open(rank, OPTIONS.withAlgorithm(what, algorithm))) {
      check(rank, collectives, bytes(rank, what, count, false), false, 2);
    }
  }

  @Test
  void shouldExchangePartsOfAnySizes(LocalRank rank, Collectives collectives) throws Exception {
    Random random = new Random(7);
    for (int round = 0; round < 12; round++) {
      RandomCollectiveCase call =
          new RandomCollectiveCase(random, rank.nRanks(), Collective.ALL_TO_ALL_V, 90_000);
      check(rank, collectives, call, false, 2);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldSendAroundARing(boolean registered, LocalRank rank, Collectives collectives)
      throws Exception {
    for (int size : new int[] {1, 1000, 70_000, (4 << 20) - 13, THIN ? 1 : 5 << 20}) {
      RandomCollectiveCase call = bytes(rank, Collective.SEND_RECEIVE, size, false);
      check(rank, collectives, call, registered, size <= 1 << 20 ? 5 : THIN ? 1 : 2);
    }
  }

  /** Ranks that know the output and ranks that do not, in turns. */
  @ParameterizedTest(name = "{0} blocks, 0 for as many as fit")
  @ValueSource(ints = {0, 1, 5})
  void shouldSendLargeMessagesIntoRegisteredAndUnregisteredOutputs(int blocks, LocalRank rank) {
    Collectives collectives = open(rank, OPTIONS.withMaxBlocks(blocks));
    int nRanks = rank.nRanks();
    int me = rank.rank();
    int next = (me + 1) % nRanks;
    int last = (me + nRanks - 1) % nRanks;
    int size = (4 << 20) + 5;
    DeviceBuffer input = rank.device().allocate(size);
    DeviceBuffer registered = rank.device().allocate(size + 8);
    DeviceBuffer other = rank.device().allocate(size);
    input.upload(0, Bytes.random(me, size));
    collectives.register(registered).join();
    for (int round = 0; round < 4; round++) {
      boolean intoRegistered = (round / 2 + me * (round % 2)) % 2 == 0;
      DeviceBuffer output = intoRegistered ? registered.slice(8, size) : other;
      output.upload(0, new byte[size]);
      completes(collectives.sendReceive(input, size, next, output, size, last, UINT8));
      assertThat(Bytes.of(output, 0, size)).isEqualTo(Bytes.random(last, size));
    }
  }

  /** Rank 0 sends to 1, which first waits for a rank that waits for rank 0. */
  @Test
  void shouldNotDelayAReceiveByAConcurrentSend(LocalRank rank, Collectives collectives) {
    int last = rank.nRanks() - 1;
    int size = (THIN ? 8 : 20) << 20;
    DeviceBuffer input = rank.device().allocate(size);
    DeviceBuffer output = rank.device().allocate(size);
    if (rank.rank() == 0) {
      completes(collectives.sendReceive(input, size, 1, output, size, last, UINT8));
    } else if (rank.rank() == last && last > 1) {
      completes(collectives.send(input, size, UINT8, 0));
      completes(collectives.send(input, 8, UINT8, 1));
    } else if (rank.rank() == 1 && last > 1) {
      completes(collectives.recv(output, 8, UINT8, last));
      completes(collectives.recv(output, size, UINT8, 0));
    } else if (rank.rank() == 1) {
      completes(collectives.sendReceive(input, size, 0, output, size, 0, UINT8));
    }
  }

  @Test
  void shouldSendAndReceiveWhileOtherRanksCallACollective(LocalRank rank, Collectives collectives)
      throws Exception {
    int last = rank.nRanks() - 1;
    int most = 1 << 20;
    DeviceBuffer memory = rank.device().allocate(most);
    for (int size : new int[] {1, 4096, 100_001, most}) {
      if (rank.rank() == 0) {
        memory.upload(0, Bytes.random(0, size));
        completes(collectives.send(memory, size, UINT8, last));
      } else if (rank.rank() == last) {
        completes(collectives.recv(memory, size, UINT8, 0));
        assertThat(Bytes.of(memory, 0, size)).isEqualTo(Bytes.random(0, size));
      }
      check(rank, collectives, bytes(rank, Collective.ALL_GATHER, 100, false), false, 1);
    }
  }

  @Test
  void shouldNotCompleteABarrierBeforeAllRanksHaveStartedIt(LocalRank rank, Collectives collectives)
      throws Exception {
    for (int round = 0; round < 5; round++) {
      completes(collectives.barrier());
    }
    if (rank.rank() == rank.nRanks() - 1) {
      TimeUnit.MILLISECONDS.sleep(20);
      lastIsThere.complete(null);
    }
    completes(collectives.barrier());
    assertThat(lastIsThere).isCompleted();
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_GATHER,exchange-ll8",
    "ALL_TO_ALL,exchange-ll128",
    "ALL_TO_ALL,exchange-push",
    "BROADCAST,exchange-spread",
    "ALL_GATHER,exchange-copy"
  })
  void shouldProduceEqualOutputsIfReplayedAsAGraph(
      Collective what, String algorithm, LocalRank rank) {
    try (Collectives collectives = open(rank, OPTIONS.withAlgorithm(what, algorithm))) {
      for (int count : new int[] {1000, 7003}) {
        RandomCollectiveCase call = bytes(rank, what, count, false);
        DeviceBuffer memory = rank.device().allocate(call.memory());
        collectives.register(memory).join();
        RandomCollectiveCase.Run run = call.on(rank.rank(), memory);
        try (CapturedPipeline replayed = collectives.pipeline().then(run.call).capture()) {
          replayed.run(9).block(LONG);
        }
        run.verify();
      }
    }
  }

  @Test
  void shouldExchangeOnTwoLanesAtOnce(LocalRank rank, Collectives one) throws Exception {
    Collectives other = one.lane("other").join();
    RandomCollectiveCase call = bytes(rank, Collective.ALL_GATHER, 4000, false);
    long size = call.memory();
    RandomCollectiveCase.Run a = call.on(rank.rank(), rank.device().allocate(size));
    RandomCollectiveCase.Run b = call.on(rank.rank(), rank.device().allocate(size));
    boolean isEven = rank.rank() % 2 == 0;
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      runs.add((isEven ? one : other).run(isEven ? a.call : b.call).toFuture());
      runs.add((isEven ? other : one).run(isEven ? b.call : a.call).toFuture());
    }
    for (CompletableFuture<Void> run : runs) {
      run.get(LONG.toSeconds(), TimeUnit.SECONDS);
    }
    a.verify();
    b.verify();
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_GATHER,exchange-ll8,1000",
    "ALL_GATHER,exchange-ll128,1000000",
    "ALL_GATHER,exchange-push,100000",
    "ALL_GATHER,exchange-copy,100000",
    "BARRIER,exchange-ll8,0",
    "SEND_RECEIVE,exchange-ll128,20000000",
    "ALL_REDUCE,one-shot-ll8,500",
    "ALL_REDUCE,one-shot-ll128,500",
    "ALL_REDUCE,one-shot-sentinel,500",
    "ALL_REDUCE,two-shots-ll128,20000",
    "ALL_REDUCE,two-shots-sentinel,20000",
    "ALL_REDUCE,two-shots-bulk,20000",
    "ALL_REDUCE,staggered-direct,20000",
    "ALL_REDUCE,staggered-staged,20000",
    "ALL_REDUCE,copy-engines-reduce,20000"
  })
  void shouldAbortOnAllRanksIfOneCancelsAndCancelAborts(
      Collective what, String algorithm, int count, LocalRank rank) throws Exception {
    int nRanks = rank.nRanks();
    int me = rank.rank();
    int next = (me + 1) % nRanks;
    int last = (me + nRanks - 1) % nRanks;
    CollectivesOptions options = OPTIONS.withAbortOnCancel(true).withAlgorithm(what, algorithm);
    long outputs = Math.max(1L, count) * (what == Collective.SEND_RECEIVE ? 1 : nRanks);
    try (Collectives collectives = open(rank, options)) {
      DeviceBuffer input = rank.device().allocate(Math.max(1, count));
      DeviceBuffer output = rank.device().allocate(outputs);
      Registration registration = collectives.register(output).join();
      CollectiveCall call =
          switch (what) {
            case BARRIER -> CollectiveCall.barrier();
            case ALL_REDUCE -> CollectiveCall.allReduce(output, output, count, FLOAT16, SUM);
            case SEND_RECEIVE ->
                CollectiveCall.sendReceive(input, count, next, output, count, last, UINT8);
            default -> CollectiveCall.allGather(input, output, count, UINT8);
          };
      assumeTrue(
          collectives.algorithmsFor(call).contains(algorithm),
          "these GPUs do not use the algorithm for this size");
      Mono<Void> run = collectives.run(call);
      CompletableFuture<Void> failed = rank.communicator().inFlight(new CompletableFuture<>());
      rank.awaitAll();
      if (me == nRanks - 1) {
        fails(failed, Aborted.class, "cancelled");
        return;
      }
      if (me == 0) {
        run.subscribe().dispose();
        fails(failed, Throwable.class);
      } else if (what != Collective.SEND_RECEIVE || next == nRanks - 1) {
        fails(run.toFuture(), Aborted.class);
      } else {
        // It completes if both peers took part.
        run.onErrorComplete(Aborted.class).block(LONG);
      }
      CompletableFuture<Void> idle = new CompletableFuture<>();
      rank.device().whenEnqueuedWorkIsDone(() -> idle.complete(null));
      idle.get(LONG.toSeconds(), TimeUnit.SECONDS);
      registration.close();
    }
  }
}
