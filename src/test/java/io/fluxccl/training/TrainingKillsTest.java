// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;

/** Ranks are killed at random while they train, join and restore; replacements join. */
@Tag("multiprocess")
@Timeout(1800)
class TrainingKillsTest {
  private static final int RANKS = 3;
  private static final int KILLS = Rounds.of(2, 120);
  private static final int STEPS_FOR_A_KILL = 40;
  private static final int MOST_PAUSE_MILLIS = 1500;

  /** Examples of all ranks in a step. */
  private static final int BATCH = 6;

  private static final ShardedSampler SAMPLER = new ShardedSampler(90, 5);
  private static final String STAMP = "stamp";
  private static final float RATE = 0.05f;

  /** Returns the gradients of a model with a weight and a bias, which learns y = 3x + 1. */
  private static Map<String, Float> gradient(Map<String, Float> model, int[] examples) {
    float weight = 0;
    float bias = 0;
    for (int example : examples) {
      float x = (example % 13 - 6) / 6f;
      float error = model.get("weight") * x + model.get("bias") - (3 * x + 1);
      weight += error * x / examples.length;
      bias += error / examples.length;
    }
    return Map.of("weight", weight, "bias", bias);
  }

  /** A rank. Prints "at N" after some steps, and "wrong" if its parameters are a mixture. */
  static final class Rank {
    private final Map<String, FloatView> parameters = new TreeMap<>();
    private final Map<String, FloatView> gradients = new TreeMap<>();
    private final long goal;
    private final Checkpoint checkpoint;
    private long position;

    private Rank(String... arguments) {
      goal = Long.parseLong(arguments[0]);
      checkpoint = Checkpoint.in(Path.of(arguments[1]), 2);
    }

    public static void main(String[] arguments) {
      RankGroup.generations(JoinOptions.fromEnvironment())
          .doOnNext(new Rank(arguments)::run)
          .blockLast();
    }

    private void run(RankGroup group) {
      if (parameters.isEmpty()) {
        for (String name : new String[] {"weight", "bias"}) {
          parameters.put(name, group.device().allocateFloats(1));
          gradients.put(name, group.device().allocateFloats(1));
        }
        // Each of its elements is the position, so a mixture is visible.
        parameters.put(STAMP, group.device().allocateFloats(1 << 18));
        checkpoint
            .newest()
            .flatMap(newest -> checkpoint.read(newest, parameters))
            .blockOptional()
            .ifPresent(newest -> position = newest);
      }
      try (NamedCollectives named = Mono.fromFuture(group.collectives()::named).block();
          GradientReducer reducer = GradientReducer.of(named, gradients)) {
        ParameterSync sync = ParameterSync.of(group, parameters);
        position = sync.restore(position).block();
        for (float stamp : parameters.get(STAMP).toArray()) {
          if (stamp != position) {
            System.out.println("wrong: " + stamp + " at " + position);
          }
        }
        train(group, reducer);
        sync.check().block();
        group.close();
      } catch (FluxCclException e) {
        System.out.println("failed " + e.getMessage());
      }
    }

    private void train(RankGroup group, GradientReducer reducer) {
      float[] stamps = new float[(int) parameters.get(STAMP).size()];
      for (int steps = 1; position < goal; steps++) {
        ShardedSampler.Step step = SAMPLER.step(position, RANKS, BATCH / RANKS);
        Map<String, Float> model = new TreeMap<>();
        gradients.keySet().forEach(name -> model.put(name, parameters.get(name).get(0)));
        gradient(model, step.examplesOf(group.rank()))
            .forEach(
                (name, value) -> {
                  gradients.get(name).put(0, value);
                  reducer.ready(name);
                });
        reducer.finish().block();
        gradients.forEach(
            (name, view) -> parameters.get(name).put(0, model.get(name) - RATE * view.get(0)));
        position = step.next();
        Arrays.fill(stamps, position);
        parameters.get(STAMP).put(stamps);
        if (group.rank() == 0 && position % (50 * BATCH) == 0) {
          checkpoint.write(position, parameters).block();
        }
        if (steps % 5 == 0) {
          System.out.println("at " + position);
        }
      }
      gradients
          .keySet()
          .forEach(name -> System.out.println(name + " " + parameters.get(name).get(0)));
    }
  }

  /** Returns the parameters after the same steps in one process. */
  private static Map<String, Float> reference(long goal) {
    Map<String, Float> model = new TreeMap<>(Map.of("weight", 0f, "bias", 0f));
    for (long position = 0; position < goal; position += BATCH) {
      int[] examples = SAMPLER.step(position, 1, BATCH).examplesOf(0);
      gradient(model, examples)
          .forEach((name, value) -> model.merge(name, -RATE * value, Float::sum));
    }
    return model;
  }

  private static double last(ProcessRank rank, String name) {
    String line = rank.last(name + " ");
    return line == null ? 0 : Double.parseDouble(line.split(" ")[1]);
  }

  private static void assertWhole(ProcessRank rank) {
    assertThat(rank.lines()).noneMatch(line -> line.startsWith("wrong"));
  }

  private static void kill(ProcessRanks ranks, int victim) {
    assertWhole(ranks.get(victim));
    ranks.replace(victim);
  }

  @Test
  void shouldReachTheParametersOfOneProcessAfterRandomKills(@TempDir Path folder) {
    Random random = new Random(Rounds.SEED);
    long goal = (long) (KILLS + 1) * STEPS_FOR_A_KILL * BATCH;
    String checkpoints = folder.resolve("checkpoints").toString();
    try (ProcessRanks ranks =
        TestJvms.of(RANKS, Rank.class, Long.toString(goal), checkpoints).start()) {
      for (int kill = 1; kill <= KILLS; kill++) {
        int victim = random.nextInt(RANKS);
        long target = (long) kill * STEPS_FOR_A_KILL * BATCH;
        ProcessRank survivor = ranks.get((victim + 1) % RANKS);
        survivor.await(rank -> last(rank, "at") >= target, "position " + target);
        kill(ranks, victim);
        if (kill < KILLS && random.nextInt(3) == 0) {
          int pause = random.nextInt(MOST_PAUSE_MILLIS); // others join or restore meanwhile
          LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(pause));
          kill(ranks, random.nextInt(RANKS));
          kill++;
        }
      }
      for (ProcessRank rank : ranks.all()) {
        assertThat(rank.end()).as(rank.output()).isZero();
        assertWhole(rank);
        reference(goal)
            .forEach(
                (name, value) ->
                    assertThat(last(rank, name)).as(name).isCloseTo(value, within(1e-4)));
      }
    }
  }
}
