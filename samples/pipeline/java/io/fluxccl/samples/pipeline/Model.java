// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.pipeline;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import java.util.Arrays;

/** The model: what is in it, and what comes out, in plain Java and in 32 bits. */
final class Model {
  static final int LAYERS = 2;

  private final int size;

  /**
   * A model.
   *
   * @param size rows and columns of each layer
   */
  Model(int size) {
    this.size = size;
  }

  private static int weight(int layer, int row, int column) {
    int mixed = (layer * 31 + row) * 0x9e3779b1 + column * 0x85ebca6b;
    return mixed ^ (mixed >>> 13);
  }

  static int activate(int x) {
    return x ^ (x >>> 7);
  }

  int[] firstInput() {
    int[] input = new int[size];
    Arrays.setAll(input, i -> i * 0x01000193 + 1);
    return input;
  }

  /** A step, by one rank alone. */
  int[] step(int[] input) {
    int[] values = input;
    for (int layer = 0; layer < LAYERS; layer++) {
      int[] next = new int[size];
      for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++) {
          next[row] += weight(layer, row, column) * activate(values[column]);
        }
      }
      values = next;
    }
    return values;
  }

  /** A rank's columns of a layer, in device memory, row by row. */
  DeviceBuffer weights(Device device, int layer, int firstColumn, int columns) {
    int[] values = new int[size * columns];
    for (int row = 0; row < size; row++) {
      for (int i = 0; i < columns; i++) {
        values[row * columns + i] = weight(layer, row, firstColumn + i);
      }
    }
    IntView memory = device.allocateInts(size, columns);
    memory.put(values);
    return memory.buffer();
  }

  static void write(DeviceBuffer target, int[] values) {
    IntView.of(target).put(values);
  }

  static int[] read(DeviceBuffer source) {
    return IntView.of(source).toArray();
  }
}
