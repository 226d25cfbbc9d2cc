// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.matmul.HostMatrix;
import java.util.Arrays;

/**
 * Weights to multiply by on the host device. Each input has an array of its weights, and each row
 * of the step an array of sums: HotSpot compiles a loop to vector instructions only if all arrays
 * of the loop have the same index. Each output is added up over the inputs in their order, so a row
 * has the same bits in any batch.
 */
final class HostProduct implements Kernels.Weights {
  private final int outputs;

  /** {@code columns[input][output]}. */
  private final float[][] columns;

  /** Loads matrices of equal width, stacked. */
  HostProduct(HostMatrix... stacked) {
    outputs = Arrays.stream(stacked).mapToInt(HostMatrix::rows).sum();
    columns = new float[stacked[0].cols()][outputs];
    int output = 0;
    for (HostMatrix tensor : stacked) {
      for (int row = 0; row < tensor.rows(); row++, output++) {
        for (int col = 0; col < columns.length; col++) {
          columns[col][output] = tensor.get(row, col);
        }
      }
    }
  }

  int inputs() {
    return columns.length;
  }

  int outputs() {
    return outputs;
  }

  /** Multiplies {@code count} rows, which lie side by side in {@code in}, into {@code sums}. */
  void multiply(int count, float[] in, float[][] sums) {
    for (int row = 0; row < count; row++) {
      Arrays.fill(sums[row], 0, outputs, 0);
    }
    int inputs = columns.length;
    int fours = inputs / 4 * 4;
    // Goes through the weights once: the four arrays stay in the cache for all rows.
    for (int input = 0; input < fours; input += 4) {
      for (int row = 0; row < count; row++) {
        addFour(sums[row], input, in, row * inputs + input);
      }
    }
    for (int input = fours; input < inputs; input++) {
      for (int row = 0; row < count; row++) {
        addOne(sums[row], columns[input], in[row * inputs + input]);
      }
    }
  }

  private void addFour(float[] sums, int input, float[] in, int at) {
    float[] w0 = columns[input];
    float[] w1 = columns[input + 1];
    float[] w2 = columns[input + 2];
    float[] w3 = columns[input + 3];
    float x0 = in[at];
    float x1 = in[at + 1];
    float x2 = in[at + 2];
    float x3 = in[at + 3];
    for (int i = 0; i < outputs; i++) {
      sums[i] = sums[i] + x0 * w0[i] + x1 * w1[i] + x2 * w2[i] + x3 * w3[i];
    }
  }

  private void addOne(float[] sums, float[] column, float x) {
    for (int i = 0; i < outputs; i++) {
      sums[i] += x * column[i];
    }
  }
}
