// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static io.fluxccl.samples.inference.engine.HostKernels.floats;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.Arrays;
import java.util.function.IntConsumer;

/** The host device's kernels that choose tokens ({@link Nucleus}); each is called for one row. */
final class HostSampling {
  private final int width;
  private final int firstToken;
  private final int maxRows;
  private final PinnedBuffer step;
  private final float[] logits;
  private final long[] sums = new long[Nucleus.BINS];

  /**
   * Creates the kernels of one rank.
   *
   * @param width tokens of the vocabulary for which this rank has logits
   */
  HostSampling(int width, int rank, int maxRows, PinnedBuffer step) {
    this.width = width;
    this.firstToken = rank * width;
    this.maxRows = maxRows;
    this.step = step;
    this.logits = new float[width];
  }

  private static LongBuffer longs(DeviceBuffer buffer) {
    return buffer.asByteBuffer().orElseThrow().asLongBuffer();
  }

  private static IntBuffer ints(DeviceBuffer buffer) {
    return buffer.asByteBuffer().orElseThrow().asIntBuffer();
  }

  private StepRows.Row row(int row) {
    return StepRows.row(step.buffer(), row);
  }

  IntConsumer most(Kernels.Choice choice) {
    FloatBuffer source = floats(choice.logits());
    FloatBuffer target = floats(choice.most());
    return row -> {
      source.get(row * width, logits);
      float most = Float.NEGATIVE_INFINITY;
      for (float logit : logits) {
        most = Math.max(most, logit);
      }
      target.put(row, most);
    };
  }

  IntConsumer masses(int level, Kernels.Choice choice) {
    FloatBuffer source = floats(choice.logits());
    FloatBuffer mosts = floats(choice.most());
    IntBuffer bins = ints(choice.limits());
    LongBuffer target = longs(choice.masses(level));
    return row -> {
      Arrays.fill(sums, 0);
      float temperature = row(row).temperature();
      if (temperature > 0) {
        source.get(row * width, logits);
        float most = mosts.get(row);
        for (float logit : logits) {
          int distance = Nucleus.distance(most, logit, temperature);
          if (level == 0 || distance / Nucleus.BINS == bins.get(row)) {
            int bin = level == 0 ? distance / Nucleus.BINS : distance % Nucleus.BINS;
            sums[bin] += Nucleus.mass(most, logit, temperature);
          }
        }
      }
      target.put(row * Nucleus.BINS, sums);
    };
  }

  IntConsumer limit(int level, Kernels.Choice choice) {
    LongBuffer first = longs(choice.coarse());
    LongBuffer second = longs(choice.fine());
    IntBuffer target = ints(choice.limits());
    return row -> {
      first.get(row * Nucleus.BINS, sums);
      double all = 0;
      for (long sum : sums) {
        all += sum;
      }
      long reach = (long) (all * row(row).topP());
      int bin = Nucleus.firstBin(sums, reach);
      if (level == 1) {
        for (int before = 0; before < bin; before++) {
          reach -= sums[before];
        }
        second.get(row * Nucleus.BINS, sums);
        bin = bin * Nucleus.BINS + Nucleus.firstBin(sums, reach);
      }
      target.put(row, bin);
    };
  }

  IntConsumer best(boolean nucleus, Kernels.Choice choice) {
    FloatBuffer source = floats(choice.logits());
    FloatBuffer mosts = floats(choice.most());
    IntBuffer distances = ints(choice.limits());
    LongBuffer target = longs(choice.best());
    return row -> {
      source.get(row * width, logits);
      StepRows.Row settings = row(row);
      float temperature = settings.temperature();
      boolean limited = nucleus && temperature > 0 && settings.topP() < 1;
      long best = Long.MIN_VALUE;
      for (int i = 0; i < width; i++) {
        if (limited
            && Nucleus.distance(mosts.get(row), logits[i], temperature) > distances.get(row)) {
          continue;
        }
        int token = firstToken + i;
        float score = logits[i];
        if (temperature > 0) {
          score = score / temperature + Nucleus.gumbel(settings.seed(), settings.position(), token);
        }
        best = Math.max(best, Nucleus.candidate(score, token));
      }
      target.put(row, best);
    };
  }

  IntConsumer choose(Kernels.Choice choice) {
    LongBuffer source = longs(choice.best());
    return row ->
        step.buffer()
            .putInt(
                StepRows.nextOffset(maxRows, row),
                Nucleus.token(source.get(row)),
                ByteOrder.LITTLE_ENDIAN);
  }
}
