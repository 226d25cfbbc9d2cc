// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;

/**
 * Collectives that only move bytes, checked against a model of all ranks' memory. Every byte of a
 * rank's buffer is compared, which also detects writes outside the output.
 */
abstract class ExchangeContract {
  static final Duration LONG = Duration.ofSeconds(100);
  private static final int GAP = 40;

  /** Emulated GPUs are slow: without -Plong they test fewer rank counts, sizes and offsets. */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  /** Initial memory contents of the latest shapes; one rank creates them for all ranks. */
  private final Map<List<Integer>, byte[][]> made = new ConcurrentHashMap<>();

  /** Returns the largest number of ranks. */
  abstract int most();

  LocalRanks ranks(int n) {
    return LocalRanks.onGpus(n);
  }

  /** A call of a rank; the buffers are null if only its shape is needed. */
  interface Shape {
    CollectiveCall on(int rank, DeviceBuffer input, DeviceBuffer output);
  }

  /**
   * The offsets of input and output in each rank's memory.
   *
   * @param shape of the call
   * @param input offset
   * @param output offset
   * @param size of the memory
   */
  private record Placed(Shape shape, int nRanks, int[] input, int[] output, int size) {
    static Placed apart(Shape shape, int nRanks, int inputAt, int outputAt) {
      int[] inputs = new int[nRanks];
      int[] outputs = new int[nRanks];
      int most = 0;
      int longest = 0;
      for (int rank = 0; rank < nRanks; rank++) {
        CollectiveCall call = shape.on(rank, null, null);
        most = Math.max(most, (int) call.inputBytes(rank, nRanks));
        longest = Math.max(longest, (int) call.outputBytes(rank, nRanks));
      }
      int behind = (inputAt + most + GAP + 15) / 16 * 16 + outputAt;
      Arrays.fill(inputs, inputAt);
      Arrays.fill(outputs, behind);
      return new Placed(shape, nRanks, inputs, outputs, behind + longest + GAP);
    }

    static Placed inPlace(Shape shape, int nRanks, int at) {
      int[] inputs = new int[nRanks];
      int[] outputs = new int[nRanks];
      int end = 0;
      for (int rank = 0; rank < nRanks; rank++) {
        CollectiveCall call = shape.on(rank, null, null);
        int part = (int) call.countBytes() * rank;
        Collective what = call.collective();
        boolean inInput = what == Collective.SCATTER;
        boolean inOutput = what == Collective.ALL_GATHER || what == Collective.GATHER;
        inputs[rank] = at + (inOutput ? part : 0);
        outputs[rank] = at + (inInput ? part : 0);
        end = Math.max(end, inputs[rank] + (int) call.inputBytes(rank, nRanks));
        end = Math.max(end, outputs[rank] + (int) call.outputBytes(rank, nRanks));
      }
      return new Placed(shape, nRanks, inputs, outputs, end + GAP);
    }

    CollectiveCall on(int rank, DeviceBuffer memory) {
      CollectiveCall call = shape.on(rank, null, null);
      return shape.on(
          rank,
          slice(memory, input[rank], call.inputBytes(rank, nRanks)),
          slice(memory, output[rank], call.outputBytes(rank, nRanks)));
    }

    private static DeviceBuffer slice(DeviceBuffer memory, int offset, long size) {
      return size == 0 ? null : memory.slice(offset, size);
    }

    /** Computes the expected content of all ranks' memories. */
    void apply(byte[][] memories) {
      byte[][] before = new byte[nRanks][];
      for (int rank = 0; rank < nRanks; rank++) {
        before[rank] = memories[rank].clone();
      }
      for (int rank = 0; rank < nRanks; rank++) {
        for (int peer = 0; peer < nRanks; peer++) {
          CollectiveCall mine = shape.on(rank, null, null);
          CollectiveCall theirs = shape.on(peer, null, null);
          int bytes = (int) theirs.sendBytes(peer, rank);
          assertThat(mine.receiveBytes(rank, peer)).isEqualTo(bytes);
          System.arraycopy(
              before[peer],
              input[peer] + (int) theirs.sendOffset(rank),
              memories[rank],
              output[rank] + (int) mine.receiveOffset(peer),
              bytes);
        }
      }
    }
  }

  /** All ranks' memories, for a rank to change. */
  private byte[][] memories(int nRanks, int size, int seed) {
    if (made.size() > 4) {
      made.clear();
    }
    byte[][] memories =
        made.computeIfAbsent(List.of(nRanks, size, seed), shape -> random(nRanks, size, seed));
    return Arrays.stream(memories).map(byte[]::clone).toArray(byte[][]::new);
  }

  private static byte[][] random(int nRanks, int size, int seed) {
    byte[][] memories = new byte[nRanks][size];
    for (int rank = 0; rank < nRanks; rank++) {
      new SplittableRandom(seed * 31L + rank).nextBytes(memories[rank]);
    }
    return memories;
  }

  private void check(
      LocalRank rank, Collectives collectives, Placed placed, boolean registered, int times)
      throws Exception {
    byte[][] memories = memories(placed.nRanks, placed.size, placed.size);
    try (DeviceBuffer memory = rank.device().allocate(placed.size)) {
      upload(memory, memories[rank.rank()]);
      Registration registration = registered ? collectives.register(memory).join() : null;
      CollectiveCall call = placed.on(rank.rank(), memory);
      List<CompletableFuture<Void>> runs = new ArrayList<>();
      Random skew = new Random(rank.rank());
      for (int i = 0; i < times; i++) {
        if (skew.nextInt(3) == 0) {
          TimeUnit.MICROSECONDS.sleep(skew.nextInt(500));
        }
        runs.add(collectives.run(call).toFuture());
        placed.apply(memories);
      }
      for (CompletableFuture<Void> run : runs) {
        run.get(LONG.toSeconds(), TimeUnit.SECONDS);
      }
      byte[] after = download(memory, placed.size);
      assertThat(Arrays.mismatch(after, memories[rank.rank()]))
          .as("first wrong byte of %s on rank %d; %s", call, rank.rank(), placed)
          .isEqualTo(-1);
      if (registered) {
        registration.close();
      }
    }
  }

  private static void upload(DeviceBuffer memory, byte[] bytes) {
    ByteBuffer direct = ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.LITTLE_ENDIAN);
    direct.put(bytes).flip();
    memory.upload(0, direct);
  }

  private static byte[] download(DeviceBuffer memory, int size) {
    ByteBuffer direct = ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
    memory.download(0, direct);
    byte[] bytes = new byte[size];
    direct.rewind().get(bytes);
    return bytes;
  }

  private static CollectivesOptions options() {
    return CollectivesOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));
  }

  private static Collectives create(LocalRank rank, Collective what, String algorithm) {
    return create(rank, options(), what, algorithm);
  }

  private static Collectives create(
      LocalRank rank, CollectivesOptions options, Collective what, String algorithm) {
    return NearWrap.of(
        Collectives.create(
                rank.communicator(),
                algorithm == null ? options : options.withAlgorithm(what, algorithm))
            .join());
  }

  static Shape shape(Collective what, long count, int root) {
    DataType bytes = DataType.UINT8;
    return (rank, in, out) ->
        switch (what) {
          case ALL_GATHER -> CollectiveCall.allGather(in, out, count, bytes);
          case ALL_TO_ALL -> CollectiveCall.allToAll(in, out, count, bytes);
          case BROADCAST -> CollectiveCall.broadcast(in, out, count, bytes, root);
          case GATHER -> CollectiveCall.gather(in, out, count, bytes, root);
          case SCATTER -> CollectiveCall.scatter(in, out, count, bytes, root);
          default -> throw new IllegalArgumentException(what.label());
        };
  }

  void checkAll(int nRanks, Collective what, String algorithm, boolean registered, int[] counts) {
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = create(rank, what, algorithm)) {
              for (int count : counts) {
                Shape shape = shape(what, count, count % nRanks);
                // Offsets of whole, half and odd words; equal and different for input and output.
                int[][] places = {{0, 0}, {1, 6}, {4, 0}};
                for (int[] at : THIN ? Arrays.copyOf(places, 2) : places) {
                  check(
                      rank, collectives, Placed.apart(shape, nRanks, at[0], at[1]), registered, 3);
                }
                boolean inPlace =
                    what != Collective.ALL_TO_ALL
                        || !"exchange-push".equals(algorithm) && !"exchange-copy".equals(algorithm);
                if (inPlace) {
                  check(
                      rank,
                      collectives,
                      Placed.inPlace(shape, nRanks, 8),
                      registered,
                      THIN ? 2 : 3);
                  if (!THIN || count > 1) {
                    check(rank, collectives, Placed.inPlace(shape, nRanks, 3), registered, 2);
                  }
                }
              }
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_GATHER,exchange-ll8",
    "ALL_TO_ALL,exchange-ll8",
    "BROADCAST,exchange-ll8",
    "GATHER,exchange-ll8",
    "SCATTER,exchange-ll8",
    "ALL_GATHER,exchange-ll128",
    "ALL_TO_ALL,exchange-ll128",
    "BROADCAST,exchange-ll128",
    "GATHER,exchange-ll128",
    "SCATTER,exchange-ll128",
  })
  void shouldMoveBytesOfAnyCountAndAlignmentByPackets(Collective what, String algorithm) {
    for (int nRanks = 2; nRanks <= most(); nRanks += THIN ? Math.max(1, most() - 2) : 1) {
      checkAll(nRanks, what, algorithm, false, new int[] {1, 121, 5000});
    }
  }

  @ParameterizedTest
  @CsvSource({"ALL_GATHER", "ALL_TO_ALL", "BROADCAST"})
  void shouldStoreIntoRegisteredOutputs(Collective what) {
    for (int nRanks = 2; nRanks <= most(); nRanks += THIN ? Math.max(1, most() - 2) : 1) {
      checkAll(nRanks, what, "exchange-push", true, new int[] {1, 130, 50_001});
    }
  }

  @ParameterizedTest
  @CsvSource({"ALL_GATHER", "ALL_TO_ALL"})
  void shouldLetCopyEnginesWriteIntoRegisteredOutputs(Collective what) {
    checkAll(most(), what, "exchange-copy", true, new int[] {1, 50_001});
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldBroadcastBySpreadingParts(boolean registered) {
    checkAll(
        most(), Collective.BROADCAST, "exchange-spread", registered, new int[] {1, 300, 100_003});
  }

  @Test
  void shouldMoveMoreThanARingHolds() {
    int nRanks = Math.min(3, most());
    ExchangeRing ring = ExchangeRing.ll128(0, nRanks);
    int count = (int) (ring.eagerBytes() * 9 / 4 + 77);
    for (Collective what : new Collective[] {Collective.ALL_TO_ALL, Collective.SCATTER}) {
      try (LocalRanks ranks = ranks(nRanks)) {
        ranks.run(
            LONG,
            rank -> {
              try (Collectives collectives = create(rank, what, "exchange-ll128")) {
                Shape shape = shape(what, count, 1);
                if (what == Collective.SCATTER) {
                  check(rank, collectives, Placed.apart(shape, nRanks, 0, 8), false, 2);
                } else {
                  check(rank, collectives, Placed.inPlace(shape, nRanks, 0), false, 1);
                }
              }
            });
      }
    }
  }

  @Test
  void shouldExchangePartsOfAnySizes() {
    int nRanks = most();
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            Random random = new Random(7);
            try (Collectives collectives =
                NearWrap.of(Collectives.create(rank.communicator(), options()).join())) {
              for (int round = 0; round < 12; round++) {
                long[][] counts = new long[nRanks][nRanks];
                for (long[] row : counts) {
                  for (int i = 0; i < nRanks; i++) {
                    int kind = random.nextInt(4);
                    row[i] =
                        kind == 0 ? 0 : random.nextInt(kind == 1 ? 64 : kind == 2 ? 3000 : 90_000);
                  }
                }
                Shape shape =
                    (me, in, out) -> {
                      long[] receive = new long[nRanks];
                      for (int i = 0; i < nRanks; i++) {
                        receive[i] = counts[i][me];
                      }
                      return CollectiveCall.allToAllv(in, counts[me], out, receive, DataType.UINT8);
                    };
                check(
                    rank, collectives, Placed.apart(shape, nRanks, round % 3, round % 5), false, 2);
              }
            }
          });
    }
  }

  private static Shape ring(int nRanks, long[] sizes) {
    return (me, in, out) -> {
      int source = (me + nRanks - 1) % nRanks;
      return CollectiveCall.sendReceive(
          in, sizes[me], (me + 1) % nRanks, out, sizes[source], source, DataType.UINT8);
    };
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldSendAroundARing(boolean registered) {
    int nRanks = most();
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                NearWrap.of(Collectives.create(rank.communicator(), options()).join())) {
              long[] sizes = new long[nRanks];
              // If tests are thinned out, the last size is close to the limit of large messages.
              long[] around = {1, 1000, 70_000, (4 << 20) - 13, 5 << 20};
              for (long size : THIN ? Arrays.copyOf(around, 4) : around) {
                for (int i = 0; i < nRanks; i++) {
                  sizes[i] = size + i * 13L;
                }
                check(
                    rank,
                    collectives,
                    Placed.apart(ring(nRanks, sizes.clone()), nRanks, 0, 0),
                    registered,
                    size > 1 << 20 ? THIN ? 1 : 2 : 5);
              }
            }
          });
    }
  }

  @Test
  void shouldSendLargeMessagesIntoRegisteredAndUnregisteredOutputs() {
    int nRanks = most();
    int size = (4 << 20) + 5;
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            int ahead = (me + 1) % nRanks;
            int behind = (me + nRanks - 1) % nRanks;
            byte[][] inputs = memories(nRanks, size, 1);
            try (Collectives collectives =
                    NearWrap.of(Collectives.create(rank.communicator(), options()).join());
                DeviceBuffer input = rank.device().allocate(size);
                DeviceBuffer registered = rank.device().allocate(size + 8);
                DeviceBuffer other = rank.device().allocate(size)) {
              upload(input, inputs[me]);
              collectives.register(registered).join();
              for (int round = 0; round < 4; round++) {
                // In two of four rounds neighbours use different kinds of output.
                boolean intoRegistered = (round / 2 + me * (round % 2)) % 2 == 0;
                DeviceBuffer output = intoRegistered ? registered.slice(8, size) : other;
                upload(output, new byte[size]);
                collectives
                    .sendReceive(input, size, ahead, output, size, behind, DataType.UINT8)
                    .block(LONG);
                assertThat(Arrays.mismatch(download(output, size), inputs[behind])).isEqualTo(-1);
              }
            }
          });
    }
  }

  @Test
  void shouldNotDelayAReceiveByAConcurrentSend() {
    int nRanks = most();
    int size = (THIN ? 8 : 20) << 20;
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            try (Collectives collectives =
                    NearWrap.of(Collectives.create(rank.communicator(), options()).join());
                DeviceBuffer input = rank.device().allocate(size);
                DeviceBuffer output = rank.device().allocate(size)) {
              if (me == 0) {
                // More than a ring holds. Rank 1 receives it only after the last rank has sent to
                // this rank.
                collectives
                    .sendReceive(input, size, 1, output, size, nRanks - 1, DataType.UINT8)
                    .block(LONG);
              } else if (me == nRanks - 1 && nRanks > 2) {
                collectives.send(input, size, DataType.UINT8, 0).block(LONG);
                collectives.send(input, 8, DataType.UINT8, 1).block(LONG);
              } else if (me == 1 && nRanks > 2) {
                collectives.recv(output, 8, DataType.UINT8, nRanks - 1).block(LONG);
                collectives.recv(output, size, DataType.UINT8, 0).block(LONG);
              } else if (me == 1) {
                collectives
                    .sendReceive(input, size, 0, output, size, 0, DataType.UINT8)
                    .block(LONG);
              }
            }
          });
    }
  }

  @Test
  void shouldSendAndReceiveWhileOtherRanksCallACollective() {
    int nRanks = most();
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            int last = nRanks - 1;
            int most = 1 << 20;
            byte[] sent = memories(nRanks, most, 3)[0];
            try (Collectives collectives =
                    NearWrap.of(Collectives.create(rank.communicator(), options()).join());
                DeviceBuffer memory = rank.device().allocate(most)) {
              for (int size : new int[] {1, 4096, 100_001, most}) {
                // Only the first and last rank exchange; the others already call the all-gather.
                if (me == 0) {
                  upload(memory, sent);
                  collectives.send(memory, size, DataType.UINT8, last).block(LONG);
                } else if (me == last) {
                  collectives.recv(memory, size, DataType.UINT8, 0).block(LONG);
                  assertThat(Arrays.mismatch(download(memory, size), Arrays.copyOf(sent, size)))
                      .isEqualTo(-1);
                }
                check(
                    rank,
                    collectives,
                    Placed.apart(shape(Collective.ALL_GATHER, 100, 0), nRanks, 0, 0),
                    false,
                    1);
              }
            }
          });
    }
  }

  @Test
  void shouldNotCompleteABarrierBeforeAllRanksHaveStartedIt() {
    int nRanks = most();
    CompletableFuture<Void> lastIsThere = new CompletableFuture<>();
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                NearWrap.of(Collectives.create(rank.communicator(), options()).join())) {
              for (int round = 0; round < 5; round++) {
                collectives.barrier().block(LONG);
              }
              boolean last = rank.rank() == nRanks - 1;
              if (last) {
                TimeUnit.MILLISECONDS.sleep(20);
                lastIsThere.complete(null);
              }
              collectives.barrier().block(LONG);
              assertThat(lastIsThere).isCompleted();
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_GATHER,exchange-ll8",
    "ALL_TO_ALL,exchange-ll128",
    "ALL_TO_ALL,exchange-push",
    "BROADCAST,exchange-spread",
    "ALL_GATHER,exchange-copy"
  })
  void shouldProduceEqualOutputsIfReplayedAsAGraph(Collective what, String algorithm) {
    int nRanks = most();
    int times = 3;
    CollectivesOptions options =
        options()
            .withFamily(new ReplayedExchange(times))
            .withAlgorithm(what, algorithm + ReplayedExchange.SUFFIX);
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              for (int count : new int[] {1000, 7003}) {
                // Repeated calls write equal outputs.
                check(
                    rank, collectives, Placed.apart(shape(what, count, 0), nRanks, 0, 0), true, 3);
              }
            }
          });
    }
  }

  @Test
  void shouldExchangeOnTwoLanesAtOnce() {
    int nRanks = most();
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives one =
                    NearWrap.of(Collectives.create(rank.communicator(), options()).join());
                Collectives other = one.lane("other").join();
                DeviceBuffer input = rank.device().allocate(4000);
                DeviceBuffer a = rank.device().allocate(4000L * nRanks);
                DeviceBuffer b = rank.device().allocate(4000L * nRanks)) {
              byte[][] inputs = memories(nRanks, 4000, 1);
              upload(input, inputs[rank.rank()]);
              List<CompletableFuture<Void>> runs = new ArrayList<>();
              for (int i = 0; i < 20; i++) {
                // Half of the ranks use the other order, because lanes don't wait for each other.
                boolean first = rank.rank() % 2 == 0;
                runs.add(
                    (first ? one : other)
                        .allGather(input, first ? a : b, 4000, DataType.UINT8)
                        .toFuture());
                runs.add(
                    (first ? other : one)
                        .allGather(input, first ? b : a, 4000, DataType.UINT8)
                        .toFuture());
              }
              for (CompletableFuture<Void> run : runs) {
                run.get(LONG.toSeconds(), TimeUnit.SECONDS);
              }
              for (DeviceBuffer output : new DeviceBuffer[] {a, b}) {
                byte[] all = download(output, 4000 * nRanks);
                for (int peer = 0; peer < nRanks; peer++) {
                  assertThat(Arrays.copyOfRange(all, peer * 4000, (peer + 1) * 4000))
                      .isEqualTo(inputs[peer]);
                }
              }
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_GATHER,exchange-ll8,1000",
    "ALL_GATHER,exchange-ll128,1000000",
    "ALL_GATHER,exchange-push,100000",
    "ALL_GATHER,exchange-copy,100000",
    "BARRIER,exchange-ll8,0",
    "SEND_RECEIVE,exchange-ll128,20000000"
  })
  void shouldAbortOnAllRanksIfOneCancelsAndCancelAborts(
      Collective what, String algorithm, int count) {
    int nRanks = most();
    // Not a barrier of the ranks: the first rank to leave it could abort while others still wait.
    CountDownLatch allReady = new CountDownLatch(nRanks);
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            CollectivesOptions options = options().withAbortOnCancel(true);
            long outputs = Math.max(1L, count) * (what == Collective.SEND_RECEIVE ? 1 : nRanks);
            try (Collectives collectives = create(rank, options, what, algorithm);
                DeviceBuffer input = rank.device().allocate(Math.max(1, count));
                DeviceBuffer output = rank.device().allocate(outputs)) {
              Registration registration = collectives.register(output).join();
              allReady.countDown();
              assertThat(allReady.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
              if (me == nRanks - 1) {
                // Never calls, and receives the abort.
                Throwable reason =
                    assertThatFailure(rank.communicator().inFlight(new CompletableFuture<>()));
                assertThat(reason).isInstanceOf(Aborted.class).hasMessageContaining("cancelled");
                return;
              }
              int ahead = (me + 1) % nRanks;
              int behind = (me + nRanks - 1) % nRanks;
              Mono<Void> run =
                  switch (what) {
                    case BARRIER -> collectives.barrier();
                    case SEND_RECEIVE ->
                        collectives.sendReceive(
                            input, count, ahead, output, count, behind, DataType.UINT8);
                    default -> collectives.allGather(input, output, count, DataType.UINT8);
                  };
              if (me == 0) {
                run.subscribe().dispose();
                assertThatFailure(rank.communicator().inFlight(new CompletableFuture<>()));
              } else if (what != Collective.SEND_RECEIVE || ahead == nRanks - 1) {
                assertThat(assertThatFailure(run.toFuture())).isInstanceOf(Aborted.class);
              } else {
                // Both of its peers have called, so its run may complete before the abort.
                run.onErrorComplete(Aborted.class).block(LONG);
              }
              // Wait until all kernels have ended.
              CompletableFuture<Void> idle = new CompletableFuture<>();
              rank.device().whenEnqueuedWorkIsDone(() -> idle.complete(null));
              idle.get(LONG.toSeconds(), TimeUnit.SECONDS);
              registration.close();
            }
          });
    }
  }

  private static Throwable assertThatFailure(CompletableFuture<?> future) {
    try {
      future.get(LONG.toSeconds(), TimeUnit.SECONDS);
      throw new AssertionError("should have failed");
    } catch (ExecutionException e) {
      return e.getCause();
    } catch (InterruptedException | TimeoutException e) {
      throw new AssertionError(e);
    }
  }
}
