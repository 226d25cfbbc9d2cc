// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;

/** A rank is killed in the middle of a backward pass, and replaced. */
@Tag("multiprocess")
@Timeout(180)
class TrainingHealsTest {
  private static final int RANKS = 4;
  private static final int BATCH = 2;
  private static final int EXAMPLES = 90;
  private static final int EPOCHS = 4;
  private static final int KILLED_AT = 117;
  private static final float RATE = 0.05f;

  /** The gradients of a model with a weight and a bias, which learns y = 3x + 1. */
  private static float[] gradient(float weight, float bias, int[] examples) {
    float[] sums = new float[2];
    for (int example : examples) {
      float x = (example % 13 - 6) / 6f;
      float error = weight * x + bias - (3 * x + 1);
      sums[0] += error * x / examples.length;
      sums[1] += error / examples.length;
    }
    return sums;
  }

  /** One rank. The victim stops in the middle of a step of its first generation. */
  static final class Rank {
    private final int victim;
    private long position;
    private final Map<String, FloatView> parameters = new LinkedHashMap<>();
    private final Map<String, FloatView> gradients = new LinkedHashMap<>();

    private Rank(int victim) {
      this.victim = victim;
    }

    public static void main(String[] arguments) {
      Rank rank = new Rank(Integer.parseInt(arguments[0]));
      RankGroup.generations(JoinOptions.fromEnvironment()).doOnNext(rank::train).blockLast();
    }

    private void train(RankGroup group) {
      for (String name : new String[] {"weight", "bias"}) {
        parameters.computeIfAbsent(name, any -> group.device().allocateFloats(1));
        gradients.computeIfAbsent(name, any -> group.device().allocateFloats(1));
      }
      try (NamedCollectives named = Mono.fromFuture(group.collectives()::named).block();
          GradientReducer reducer = GradientReducer.of(named, gradients)) {
        long before = position;
        position = ParameterSync.of(group, parameters).restore(position).block();
        System.out.println("resumed at " + position + " from " + before);
        ShardedSampler sampler = new ShardedSampler(EXAMPLES, 5);
        while (position < EPOCHS * EXAMPLES) {
          ShardedSampler.Step step = sampler.step(position, RANKS, BATCH);
          step(group, reducer, step.examplesOf(group.rank()));
          position = step.next();
        }
        System.out.println("weight " + parameters.get("weight").get(0));
        System.out.println("bias " + parameters.get("bias").get(0));
        ParameterSync.of(group, parameters).check().block();
        group.close();
      } catch (FluxCclException e) {
        System.out.println("failed " + e.getMessage());
      }
    }

    private void step(RankGroup group, GradientReducer reducer, int[] examples) {
      float[] own =
          gradient(parameters.get("weight").get(0), parameters.get("bias").get(0), examples);
      gradients.get("bias").put(0, own[1]);
      reducer.ready("bias");
      boolean isFirst = group.generation().number() == 1;
      if (group.rank() == victim && isFirst && position >= KILLED_AT) {
        System.out.println("ready to be killed at " + position);
        awaitKill();
      }
      gradients.get("weight").put(0, own[0]);
      reducer.ready("weight");
      reducer.finish().block();
      parameters.forEach(
          (name, view) -> view.put(0, view.get(0) - RATE * gradients.get(name).get(0)));
    }

    private static void awaitKill() {
      try {
        while (System.in.read() >= 0) {
          continue;
        }
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Returns the parameters after the same steps in one process. */
  private static float[] reference() {
    ShardedSampler sampler = new ShardedSampler(EXAMPLES, 5);
    float[] parameters = new float[2];
    for (long position = 0; position < EPOCHS * EXAMPLES; ) {
      ShardedSampler.Step step = sampler.step(position, RANKS, BATCH);
      float[] sums = new float[2];
      for (int rank = 0; rank < RANKS; rank++) {
        float[] one = gradient(parameters[0], parameters[1], step.examplesOf(rank));
        sums[0] += one[0] / RANKS;
        sums[1] += one[1] / RANKS;
      }
      parameters[0] -= RATE * sums[0];
      parameters[1] -= RATE * sums[1];
      position = step.next();
    }
    return parameters;
  }

  private static float valueOf(ProcessRank rank, String name) {
    return Float.parseFloat(rank.awaitLine(name).substring(name.length() + 1));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 3})
  void shouldContinueFromTheLastCompletedStep(int victim) {
    try (ProcessRanks ranks = TestJvms.of(RANKS, Rank.class, Integer.toString(victim)).start()) {
      String line = ranks.get(victim).awaitLine("ready to be killed at ");
      long position = Long.parseLong(line.substring(line.lastIndexOf(' ') + 1));
      ranks.replace(victim);
      float[] expected = reference();
      for (ProcessRank rank : ranks.all()) {
        long before = rank.rank() == victim ? 0 : position;
        rank.awaitLine("resumed at " + position + " from " + before);
        assertThat(valueOf(rank, "weight")).isCloseTo(expected[0], within(1e-4f));
        assertThat(valueOf(rank, "bias")).isCloseTo(expected[1], within(1e-4f));
        assertThat(rank.end()).isZero();
      }
    }
  }
}
