// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.mockito.Mockito;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Ranks whose calls differ: all of them end with an error that names both calls. */
@OnRanks(seconds = 120)
abstract class DifferentCallsContract {
  static final Duration LONG = Duration.ofSeconds(120);
  private static final int BYTES = 1 << 20;
  private static final int HIDDEN = 64;
  private static final int[] COUNTS = {64, 640, 6400, 38400};
  private static final List<DataType> TYPES =
      List.of(INT32, DataType.UINT32, FLOAT32, DataType.INT64, DataType.FLOAT64);
  private static final List<Collective> KINDS =
      Stream.of(Collective.values())
          .filter(each -> !each.isOfExperts())
          .filter(each -> each != Collective.ALL_TO_ALL_V && each != Collective.SEND_RECEIVE)
          .toList();

  private static final DeviceBuffer NOTHING = Mockito.mock(DeviceBuffer.class);
  private static final Memory NO_MEMORY = new Memory(NOTHING, NOTHING, NOTHING, NOTHING);

  /** Returns the number of seeds with which the ranks call random operations. */
  int seeds() {
    return Rounds.of(50, 1000);
  }

  /** How one rank's call differs from the others'. */
  enum Part {
    KIND,
    COUNT,
    TYPE,
    OPERATION,
    ROOT,
    EPILOGUE,
    ORDER
  }

  /** Buffers of a rank. */
  record Memory(DeviceBuffer input, DeviceBuffer output, DeviceBuffer third, DeviceBuffer fourth)
      implements AutoCloseable {
    static Memory of(LocalRank rank) {
      return new Memory(
          rank.device().allocate(BYTES),
          rank.device().allocate(BYTES),
          rank.device().allocate(BYTES),
          rank.device().allocate(BYTES));
    }

    @Override
    public void close() {
      Closing.all(input, output, third, fourth);
    }
  }

  /** A call without its buffers. */
  record Spec(Collective kind, int count, DataType type, ReduceOp op, int root, float epsilon) {
    static Spec random(Random random) {
      return new Spec(
          KINDS.get(random.nextInt(KINDS.size())),
          COUNTS[random.nextInt(COUNTS.length)],
          TYPES.get(random.nextInt(TYPES.size())),
          random.nextBoolean() ? ReduceOp.SUM : MAX,
          random.nextInt(2),
          1e-5f);
    }

    CollectiveCall call(Memory of) {
      return kind == Collective.FUSED_ALL_REDUCE
          ? CollectiveCall.fusedAllReduce(
              of.input,
              count / HIDDEN,
              HIDDEN,
              FLOAT32,
              new AddRmsNorm(of.third, of.fourth, epsilon, 0, null, of.output))
          : new CallShape(kind, count, type, op, root).on(of.input, of.output);
    }

    /** Returns a call that differs in one part, or this if it has no such part. */
    Spec different(Part part, Random random) {
      Spec other = random(random);
      return switch (part) {
        case KIND -> new Spec(other.kind, count, type, op, root, epsilon);
        case COUNT -> new Spec(kind, other.count, type, op, root, epsilon);
        case TYPE -> new Spec(kind, count, other.type, op, root, epsilon);
        case OPERATION -> new Spec(kind, count, type, other.op, root, epsilon);
        case ROOT -> new Spec(kind, count, type, op, 1 - root, epsilon);
        case EPILOGUE -> new Spec(kind, count, type, op, root, 1e-4f);
        case ORDER -> this;
      };
    }

    /** Returns whether a rank needs nothing from others, so that it may complete before them. */
    boolean needsNothing(int rank) {
      return switch (kind) {
        case BROADCAST, SCATTER -> rank == root;
        case REDUCE, GATHER -> rank != root;
        default -> false;
      };
    }
  }

  static String text(CollectiveCall call, boolean isHashShown) {
    return CallSignature.text(CallSignature.what(call), CallSignature.count(call), isHashShown);
  }

  private static boolean differ(Spec one, Spec other) {
    CollectiveCall first = one.call(NO_MEMORY);
    CollectiveCall second = other.call(NO_MEMORY);
    return CallSignature.what(first) != CallSignature.what(second)
        || CallSignature.count(first) != CallSignature.count(second);
  }

  @Tag("long")
  @Test
  void shouldNeverCompleteACallThatDiffersInOnePart() {
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int round = 0; round < seeds(); round++) {
      long seed = Rounds.SEED + round;
      try (LocalRanks ranks = OnRanks.Runner.create(this, 2)) {
        checkRandomCalls(ranks, seed);
      } catch (AssertionError | RuntimeException e) {
        throw new AssertionError("-Dfluxccl.test.seed=" + seed, e);
      }
      if (round % 10 == 9) {
        before.assertNone(LONG); // memory of GPUs is freed later
      }
    }
  }

  private void checkRandomCalls(LocalRanks ranks, long seed) {
    Random random = new Random(seed);
    List<Spec> mine = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      mine.add(Spec.random(random));
    }
    int different = random.nextInt(3);
    List<Spec> theirs = different(mine, different, random);
    while (!differ(mine.get(different), theirs.get(different))) {
      mine.set(different, Spec.random(random));
      theirs = different(mine, different, random);
    }
    check(ranks, mine, theirs, different, random);
  }

  /** Returns calls of which one differs in one part, or is called later, if it has that part. */
  private static List<Spec> different(List<Spec> calls, int number, Random random) {
    List<Spec> all = new ArrayList<>(calls);
    Part part = Part.values()[random.nextInt(Part.values().length)];
    if (part == Part.ORDER) {
      Collections.swap(all, number, number + 1);
    } else {
      all.set(number, all.get(number).different(part, random));
    }
    return all;
  }

  private static void check(
      LocalRanks ranks, List<Spec> mine, List<Spec> theirs, int different, Random random) {
    boolean atOnce = random.nextBoolean();
    boolean registers = random.nextBoolean();
    CollectiveCall first = mine.get(different).call(NO_MEMORY);
    CollectiveCall second = theirs.get(different).call(NO_MEMORY);
    boolean isHashShown = text(first, false).equals(text(second, false));
    ranks.run(
        LONG,
        rank -> {
          try (Memory own = Memory.of(rank)) {
            Collectives collectives = open(rank);
            if (registers) {
              collectives.register(own.input).join();
              collectives.register(own.output).join();
            }
            List<Spec> specs = rank.rank() == 0 ? mine : theirs;
            List<Spec> others = rank.rank() == 0 ? theirs : mine;
            List<CompletableFuture<Void>> calls = new ArrayList<>();
            for (Spec spec : specs) {
              calls.add(collectives.run(spec.call(own)).toFuture());
              if (!atOnce) {
                calls.get(calls.size() - 1).handle((done, failure) -> null).get();
              }
            }
            failsJob(
                rank,
                InvalidUsage.class,
                "rank 0 calls " + text(first, isHashShown),
                "rank 1 calls " + text(second, isHashShown),
                "call " + (different + 1) + " of lane");
            for (int i = 0; i < calls.size(); i++) {
              boolean completed = calls.get(i).handle((done, failure) -> failure == null).get();
              // The ranks may complete calls that both make, even in different orders: two gathers
              // with different roots are independent. Their data are correct.
              boolean isPeers = others.contains(specs.get(i));
              if (i >= different && !isPeers && !specs.get(i).needsNothing(rank.rank())) {
                assertThat(completed).as("%s, number %s, completed", specs.get(i), i).isFalse();
              }
            }
          }
        });
  }

  /** A call of a rank. */
  private interface Calls {
    Mono<Void> on(Collectives collectives, int rank, Memory memory);
  }

  /** Calls of two ranks that differ, and texts of the error that both get. */
  private enum Wrong {
    BARRIER_AND_ALL_REDUCE(
        (on, rank, of) ->
            rank == 0 ? on.barrier() : on.allReduce(of.input, of.input, 1, INT32, SUM),
        "rank 0 calls barrier as call 1 of lane 0",
        "rank 1 calls all-reduce(count=1, INT32, SUM)",
        "all ranks must call the same operations in the same order"),
    ROOTS_OF_REDUCE(
        (on, rank, of) -> on.reduce(of.input, of.output, 64, INT32, SUM, rank),
        "rank 0 calls reduce(count=64, INT32, SUM, root=0)",
        "rank 1 calls reduce(count=64, INT32, SUM, root=1)"),
    ROOTS_OF_BROADCAST(
        (on, rank, of) -> on.broadcast(of.input, 64, INT32, rank),
        "rank 0 calls broadcast(count=64, INT32, root=0)",
        "rank 1 calls broadcast(count=64, INT32, root=1)"),
    CAPTURED_PIPELINES(
        (on, rank, of) ->
            on.pipeline()
                .allReduce(of.input, of.output, 64, INT32, SUM)
                .allReduce(of.output, of.input, 64 + rank, INT32, SUM)
                .capture()
                .run(2),
        "rank 0 calls all-reduce(count=64, INT32, SUM) as call 2 of lane 0",
        "rank 1 calls all-reduce(count=65, INT32, SUM)"),
    ORDER_OF_BUCKETS(
        (on, rank, of) ->
            Flux.just(1, 2, rank == 0 ? 3 : 5, 4, rank == 0 ? 5 : 3)
                .flatMap(i -> on.allReduce(of.input, of.output, 100 * i, FLOAT32, MAX))
                .then(),
        "rank 0 calls all-reduce(count=300, FLOAT32, MAX) as call 3 of lane 0",
        "rank 1 calls all-reduce(count=500, FLOAT32, MAX)"),
    SIZE_OF_SEND(
        (on, rank, of) ->
            rank == 0 ? on.send(of.input, 10, INT32, 1) : on.recv(of.output, 20, INT32, 0),
        "rank 0 calls send-receive(count=10, INT32) as message 1 from rank 0 to rank 1 of lane 0",
        "rank 1 calls send-receive(count=20, INT32)"),
    TYPE_OF_SEND(
        (on, rank, of) ->
            rank == 0 ? on.send(of.input, 10, INT32, 1) : on.recv(of.output, 10, FLOAT32, 0),
        "rank 0 calls send-receive(count=10, INT32)",
        "rank 1 calls send-receive(count=10, FLOAT32)");

    private final Calls calls;
    private final String[] texts;

    Wrong(Calls calls, String... texts) {
      this.calls = calls;
      this.texts = texts;
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldRefuseDifferentCallsOnBothRanks(Wrong wrong, LocalRank rank) throws Exception {
    shouldRefuse(rank, wrong.calls, wrong.texts);
  }

  @Test
  @OnRanks(3)
  void shouldFailAllRanksIfOneOfThreeDiffers(LocalRank rank) throws Exception {
    shouldRefuse(
        rank,
        (on, me, of) -> on.allGather(of.input, of.output, me == 2 ? 6401 : 6400, FLOAT32),
        "rank 2 calls all-gather(count=6401, FLOAT32)",
        "all-gather(count=6400, FLOAT32)");
  }

  private static void shouldRefuse(LocalRank rank, Calls calls, String... texts) throws Exception {
    try (Memory memory = Memory.of(rank)) {
      CompletableFuture<Void> run = calls.on(open(rank), rank.rank(), memory).toFuture();
      failsJob(rank, InvalidUsage.class, texts);
      run.handle((done, failure) -> null).get();
    }
  }

  @Test
  void shouldNameTheLastCallOfTheMissingRankIfARunTimesOut(LocalRank rank) throws Exception {
    Collectives collectives = open(rank, Duration.ofSeconds(3));
    collectives.barrier().block(LONG);
    if (rank.rank() == 0) {
      collectives.barrier().toFuture().handle((done, failure) -> null).get();
    }
    String missing = "rank 1, which has called nothing on lane 0 since its barrier 1 ended";
    failsJob(rank, io.fluxccl.Timeout.class, missing);
  }

  static Collectives open(LocalRank rank) {
    return open(rank, LONG);
  }

  private static Collectives open(LocalRank rank, Duration timeout) {
    return lane(rank, CollectivesOptions.DEFAULT.withTimeout(timeout).withSetupTimeout(LONG));
  }
}
