// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.training.Checkpoint;
import io.fluxccl.training.GradientReducer;
import io.fluxccl.training.ParameterSync;
import io.fluxccl.training.ShardedSampler;
import java.nio.file.Path;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/** A network with one hidden layer learns sin(4x) without a framework. Each process is a rank. */
public final class PlainTraining {
  private static final ShardedSampler SAMPLER = new ShardedSampler(4096, 1);
  private static final int HIDDEN = 64;

  private final Map<String, FloatView> parameters = new TreeMap<>();
  private final Map<String, FloatView> gradients = new TreeMap<>();
  private final long goal;
  private final int batch;
  private final Checkpoint checkpoint;
  private long position;

  /** Arguments: examples of all ranks together, examples of a rank in a step, a folder. */
  private PlainTraining(String[] arguments) {
    goal = Long.parseLong(arguments[0]);
    batch = Integer.parseInt(arguments[1]);
    checkpoint = Checkpoint.in(Path.of(arguments[2]), 2);
  }

  public static void main(String[] arguments) {
    HealingJob.run(JoinOptions.fromEnvironment(), new PlainTraining(arguments)::train);
  }

  /** Trains until the goal or until this generation fails; the next one then continues. */
  private void train(RankGroup group, NamedCollectives named) {
    if (parameters.isEmpty()) {
      allocate(group, "hidden", 2 * HIDDEN, 3);
      allocate(group, "out", HIDDEN, 0.1f);
      Long newest = checkpoint.newest().block();
      position = newest == null ? 0 : checkpoint.read(newest, parameters).block();
    }
    try (GradientReducer reducer = GradientReducer.of(named, gradients)) {
      position = ParameterSync.of(group, parameters).restore(position).block();
      System.out.println("resumed at example " + position);
      for (int steps = 1; position < goal; steps++) {
        ShardedSampler.Step step = SAMPLER.step(position, group.nRanks(), batch);
        float mean = (float) (step.next() - position) / group.nRanks();
        float loss = backward(step.examplesOf(group.rank()), mean);
        reducer.finish().block();
        parameters.forEach((name, view) -> update(view, gradients.get(name)));
        position = step.next();
        if (steps % 50 == 0 && group.rank() == 0) {
          checkpoint.write(position, parameters).block();
          System.out.println("example " + position + ": loss " + loss);
        }
      }
      System.out.println("final loss " + backward(SAMPLER.step(0, 1, 4096).examplesOf(0), 4096));
    }
  }

  private void allocate(RankGroup group, String name, int size, float scale) {
    gradients.put(name, group.device().allocateFloats(size));
    parameters.put(name, group.device().allocateFloats(size));
    Random random = new Random(size);
    for (int i = 0; i < size; i++) {
      parameters.get(name).put(i, scale * (float) random.nextGaussian());
    }
  }

  private static void update(FloatView parameter, FloatView gradient) {
    float[] values = parameter.toArray();
    for (int i = 0; i < values.length; i++) {
      values[i] -= 0.01f * gradient.get(i);
    }
    parameter.put(values);
  }

  /**
   * Computes the gradients of the mean squared error, and returns that.
   *
   * @param mean number of examples of a rank; the last step of an epoch may not divide evenly
   */
  private float backward(int[] examples, float mean) {
    float[] hidden = parameters.get("hidden").toArray();
    float[] out = parameters.get("out").toArray();
    float[] hiddenGradient = new float[hidden.length];
    float[] outGradient = new float[out.length];
    float loss = 0;
    for (int example : examples) {
      float x = (float) (example * 0.618034 % 1) * 2 - 1;
      float[] activation = new float[HIDDEN];
      float error = (float) -Math.sin(4 * x);
      for (int h = 0; h < HIDDEN; h++) {
        activation[h] = (float) Math.tanh(hidden[2 * h] * x + hidden[2 * h + 1]);
        error += out[h] * activation[h];
      }
      loss += error * error / mean;
      float slope = 2 * error / mean;
      for (int h = 0; h < HIDDEN; h++) {
        float delta = slope * out[h] * (1 - activation[h] * activation[h]);
        hiddenGradient[2 * h] += delta * x;
        hiddenGradient[2 * h + 1] += delta;
        outGradient[h] += slope * activation[h];
      }
    }
    gradients.get("hidden").put(hiddenGradient);
    gradients.get("out").put(outGradient);
    return loss;
  }
}
