package io.fluxccl.samples.pipeline;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
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
    ByteBuffer bytes = bytes((long) size * columns);
    for (int row = 0; row < size; row++) {
      for (int i = 0; i < columns; i++) {
        bytes.putInt(weight(layer, row, firstColumn + i));
      }
    }
    DeviceBuffer memory = device.allocate(bytes.capacity());
    memory.upload(0, bytes.flip());
    return memory;
  }

  static void write(DeviceBuffer target, int[] values) {
    ByteBuffer bytes = bytes(values.length);
    bytes.asIntBuffer().put(values);
    target.upload(0, bytes);
  }

  static int[] read(DeviceBuffer source) {
    ByteBuffer bytes = bytes(source.size() / Integer.BYTES);
    source.download(0, bytes);
    int[] values = new int[(int) source.size() / Integer.BYTES];
    bytes.flip().asIntBuffer().get(values);
    return values;
  }

  private static ByteBuffer bytes(long ints) {
    return ByteBuffer.allocateDirect(Math.toIntExact(ints * Integer.BYTES))
        .order(ByteOrder.LITTLE_ENDIAN);
  }
}
