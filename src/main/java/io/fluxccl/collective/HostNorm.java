// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.collective.AddRmsNorm.WithRowScales;
import io.fluxccl.collective.AddRmsNorm.WithScale;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostMemory;
import java.util.Arrays;

/**
 * {@link AddRmsNorm} on the host device. Adds in the order of {@code reduced_row.cuh}, and rounds
 * where it does; the reciprocal square root is more exact than a GPU's.
 */
final class HostNorm {
  /** Words of a group. */
  private static final int GROUP = 32;

  private static final int GROUPS_AT_ONCE = 4;
  private static final int SETS = 8;
  private static final float LARGEST = 448;
  private static final float LEAST_SCALE = 1f / (512 * LARGEST);

  private final float[] words = new float[GROUP];
  private final float[] groups = new float[GROUPS_AT_ONCE];
  private final float[] totals = new float[SETS];

  /** Norms a row, which holds the sum over the ranks. */
  void finish(AddRmsNorm norm, FusedAllReduce call, long index, FloatRow row) {
    DataType type = call.type();
    int hidden = (int) call.hidden();
    long at = index * call.rowBytes();
    float[] values = row.values();
    long residual = norm.residual().address() + at;
    for (int i = 0; i < hidden; i++) {
      values[i] += FloatRow.get(type, residual, i);
    }
    row.round(type, hidden);
    if (norm.residualOut() != null) {
      row.write(type, norm.residualOut().address() + at, hidden);
    }
    float mean = sumOfSquares(values, hidden, FusedAllReduce.WORD / type.size()) * (1f / hidden);
    float scale = (float) (1 / Math.sqrt(mean + norm.epsilon()));
    long weight = norm.weight().address();
    for (int i = 0; i < hidden; i++) {
      values[i] = values[i] * scale * (FloatRow.get(type, weight, i) + norm.weightBias());
    }
    row.round(type, hidden);
    if (norm.normOut() != null) {
      row.write(type, norm.normOut().address() + at, hidden);
    }
    if (norm.quantization() instanceof WithScale fixed) {
      quantize(row, hidden, 1 / fixed.scale(), fixed.out().address() + index * hidden);
    } else if (norm.quantization() instanceof WithRowScales perRow) {
      float rowScale = Math.max(largest(values, hidden) * (1 / LARGEST), LEAST_SCALE);
      HostMemory.putFloat(perRow.scales().address() + index * Float.BYTES, rowScale);
      quantize(row, hidden, 1 / rowScale, perRow.out().address() + index * hidden);
    }
  }

  private static void quantize(FloatRow row, int count, float inverse, long to) {
    for (int i = 0; i < count; i++) {
      row.values()[i] *= inverse;
    }
    row.write(DataType.FLOAT8_E4M3, to, count);
  }

  private static float largest(float[] values, int count) {
    float largest = 0;
    for (int i = 0; i < count; i++) {
      float magnitude = Math.abs(values[i]);
      largest = magnitude > largest ? magnitude : largest; // leaves out what is no number
    }
    return largest;
  }

  /**
   * Adds up words, then groups of words as a warp does, then four groups at a time, then every
   * eighth of these.
   */
  private float sumOfSquares(float[] values, int count, int elements) {
    Arrays.fill(totals, 0);
    int ofFour = GROUPS_AT_ONCE * GROUP * elements;
    for (int first = 0; first * ofFour < count; first++) {
      for (int group = 0; group < GROUPS_AT_ONCE; group++) {
        int from = first * ofFour + group * GROUP * elements;
        groups[group] = sumOfGroup(values, from, count, elements);
      }
      totals[first % SETS] += groups[0] + groups[1] + (groups[2] + groups[3]);
    }
    return halve(totals);
  }

  private float sumOfGroup(float[] values, int begin, int count, int elements) {
    for (int word = 0; word < GROUP; word++) {
      int from = begin + word * elements;
      float sum = 0;
      for (int i = from; i < Math.min(count, from + elements); i++) {
        sum += values[i] * values[i];
      }
      words[word] = sum;
    }
    return halve(words);
  }

  /** Adds the second half to the first until one sum is left. */
  private static float halve(float[] sums) {
    for (int distance = sums.length / 2; distance > 0; distance /= 2) {
      for (int i = 0; i < distance; i++) {
        sums[i] += sums[i + distance];
      }
    }
    return sums[0];
  }
}
