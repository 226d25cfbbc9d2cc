// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * Kills ranks that reduce small tensors by name in random orders; their job heals. Each result has
 * the bits of an ordered call, and sums of small integers are exact.
 */
@Tag("faults")
@Tag("timed")
@Timeout(600)
@Isolated
class NamedKillsTest {
  private static final int RANKS = 4;
  private static final int KILLS = Rounds.of(2, 20);

  private static final int MOST_PAUSE_MILLIS = 200;

  /** Rounds of all generations together. */
  private static final int ROUNDS = Rounds.of(60, 10_000);

  /**
   * A rank that reduces tensors in rounds, until the group ends. Prints "generation N round R"
   * every few rounds, and "wrong" with a round whose result is wrong.
   */
  static final class Rank {
    private static final int TENSORS = 20;
    private static final int REPORTED = 20;

    /** In rounds that are multiples of this, values are integers. */
    private static final int INTEGERS = 3;

    /** The first element of each tensor, of 100, 200 and so on elements, and the end. */
    private static final int[] BEGINS =
        IntStream.rangeClosed(0, TENSORS).map(i -> 50 * i * (i + 1)).toArray();

    private Rank() {}

    public static void main(String[] arguments) {
      try {
        RankGroup.generations(JoinOptions.fromEnvironment())
            .switchMap(
                group ->
                    Mono.fromRunnable(() -> work(group)).subscribeOn(Schedulers.boundedElastic()))
            .blockLast();
      } catch (RuntimeException e) {
        System.out.println("failed " + FluxCclException.from(e).getMessage());
      }
    }

    private static void work(RankGroup group) {
      FloatView all = group.device().allocateFloats(BEGINS[TENSORS]);
      FloatView expected = group.device().allocateFloats(BEGINS[TENSORS]);
      List<Integer> order = new ArrayList<>(IntStream.range(0, TENSORS).boxed().toList());
      long seed = 31 * group.generation().number() + group.rank();
      Random random = new Random(seed);
      System.out.println("seed " + seed);
      float[] values = new float[BEGINS[TENSORS]];
      try (NamedCollectives named = group.collectives().named().join()) {
        for (int round = 1; ; round++) {
          boolean isExact = round % INTEGERS == 0;
          for (int i = 0; i < values.length; i++) {
            values[i] = isExact ? integer(group.rank(), round, i) : random.nextFloat() - 0.5f;
          }
          all.put(values);
          expected.put(values);
          Collections.shuffle(order, random);
          Flux.fromIterable(order)
              .flatMap(i -> named.allReduce("tensor " + i, tensor(all, i), ReduceOp.SUM))
              .then()
              .block();
          // Within a host an element's bits do not depend on the call that it is in.
          group.collectives().allReduce(expected, ReduceOp.SUM).block();
          float[] sums = all.toArray();
          if (!Arrays.equals(sums, expected.toArray())
              || isExact && !Arrays.equals(sums, exact(round, sums.length))) {
            System.out.println("wrong: round " + round);
          }
          if (round % REPORTED == 0) {
            System.out.printf("generation %d round %d%n", group.generation().number(), round);
          }
        }
      } catch (RuntimeException e) {
        System.out.println("ended " + FluxCclException.from(e).getMessage());
      } finally {
        all.close();
        expected.close();
      }
    }

    /** Returns a small value of a rank, whose sums are exact. */
    private static float integer(int rank, int round, int index) {
      return (rank * 7 + round + index) % 13;
    }

    private static float[] exact(int round, int count) {
      float[] sums = new float[count];
      for (int i = 0; i < count; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
          sums[i] += integer(rank, round, i);
        }
      }
      return sums;
    }

    private static FloatView tensor(FloatView all, int index) {
      return all.slice(BEGINS[index], BEGINS[index + 1] - BEGINS[index]);
    }
  }

  /** Waits until all ranks have done rounds in a generation after another; returns its number. */
  private static long awaitNext(ProcessRanks ranks, long before, int rounds) {
    for (ProcessRank rank : ranks.all()) {
      rank.await(
          each -> number(each, 1) > before && number(each, 3) >= rounds,
          rounds + " rounds in a later generation than " + before);
    }
    return ranks.all().stream().mapToLong(rank -> number(rank, 1)).max().orElseThrow();
  }

  /** Returns a word of a rank's last report as a number. */
  private static long number(ProcessRank rank, int word) {
    String last = rank.last("generation ");
    return last == null ? 0 : Long.parseLong(last.split(" ")[word]);
  }

  /** Also shows the rank's seeds if a result was wrong. */
  private static void assertRight(ProcessRank rank) {
    assertThat(rank.lines()).noneMatch(line -> line.startsWith("wrong"));
  }

  @Test
  void shouldReduceRightInEachGenerationAfterAKill() {
    Random random = new Random(Rounds.SEED);
    int each = ROUNDS / (KILLS + 1);
    try (ProcessRanks ranks =
        TestJvms.of(RANKS, Rank.class)
            .jvmOptions("-XX:TieredStopAtLevel=1") // a short run
            .variables(Map.of("FLUXCCL_DEVICE", "host"))
            .start()) {
      long generation = 0;
      for (int kill = 0; kill <= KILLS; kill++) {
        generation = awaitNext(ranks, generation, each);
        ranks.all().forEach(NamedKillsTest::assertRight);
        if (kill < KILLS) {
          LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(random.nextInt(MOST_PAUSE_MILLIS)));
          int killed = random.nextInt(RANKS);
          ProcessRank before = ranks.get(killed);
          ranks.replace(killed);
          assertRight(before);
        }
      }
    }
  }
}
