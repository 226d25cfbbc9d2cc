// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.util.List;

/**
 * A view of 32-bit or 16-bit floating-point elements, which are floats on the host. A store to a
 * 16-bit element rounds to nearest, ties to even.
 *
 * <pre>{@code
 * FloatView half = FloatView.of(buffer, DataType.FLOAT16);
 * half.put(0, 0.1f); // stores 16 bits
 * half.get(0); // 0.099975586f
 * }</pre>
 */
public final class FloatView extends DeviceView {
  private static final List<DataType> TYPES =
      List.of(DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16);

  private FloatView(DeviceBuffer buffer, DataType type) {
    super(buffer, type, TYPES);
  }

  private FloatView(FloatView of, long rows, long cols) {
    super(of, rows, cols);
  }

  /** Returns a view of a whole buffer as {@link DataType#FLOAT32}. */
  public static FloatView of(DeviceBuffer buffer) {
    return of(buffer, DataType.FLOAT32);
  }

  /**
   * Returns a view of a whole buffer.
   *
   * @param buffer its bytes must be a multiple of an element's
   * @param type FLOAT32, FLOAT16 or BFLOAT16
   * @throws InvalidUsage if the type is another, or the buffer's size is not a multiple of an
   *     element's
   */
  public static FloatView of(DeviceBuffer buffer, DataType type) {
    return new FloatView(buffer, type);
  }

  @Override
  public FloatView slice(long from, long count) {
    return new FloatView(part(from, count), type());
  }

  @Override
  public FloatView shaped(long rows, long cols) {
    return new FloatView(this, rows, cols);
  }

  /**
   * Returns an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public float get(long index) {
    return decode(read(index), 0);
  }

  /** Returns an element of a row; throws {@link InvalidUsage} if there is none. */
  public float get(long row, long col) {
    return get(index(row, col));
  }

  /**
   * Sets an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public void put(long index, float value) {
    write(index, bytes -> encode(bytes, 0, value));
  }

  /** Sets an element of a row; throws {@link InvalidUsage} if there is none. */
  public void put(long row, long col, float value) {
    put(index(row, col), value);
  }

  /**
   * Sets elements from the first on. To begin at another one, use a {@link #slice}.
   *
   * @param values no more than {@link #size()}
   * @throws InvalidUsage if there are more
   */
  public void put(float[] values) {
    InvalidUsage.requireNonNull(values, "put", "values");
    writeAll(values.length, (bytes, first, n) -> encode(bytes, values, first, n));
  }

  /** Returns a copy of all elements, row by row. */
  public float[] toArray() {
    float[] values = new float[arrayLength()];
    readAll((bytes, first, n) -> decode(bytes, values, first, n));
    return values;
  }

  private float decode(ByteBuffer bytes, int at) {
    return switch (type()) {
      case FLOAT16 -> HalfFloat.fromFloat16(bytes.getShort(at));
      case BFLOAT16 -> HalfFloat.fromBfloat16(bytes.getShort(at));
      default -> bytes.getFloat(at);
    };
  }

  private void encode(ByteBuffer bytes, int at, float value) {
    switch (type()) {
      case FLOAT16 -> bytes.putShort(at, HalfFloat.toFloat16(value));
      case BFLOAT16 -> bytes.putShort(at, HalfFloat.toBfloat16(value));
      default -> bytes.putFloat(at, value);
    }
  }

  private void decode(ByteBuffer bytes, float[] to, int first, int count) {
    if (type() == DataType.FLOAT32) {
      bytes.asFloatBuffer().get(to, first, count);
      return;
    }
    for (int i = 0; i < count; i++) {
      to[first + i] = decode(bytes, i * type().size());
    }
  }

  private void encode(ByteBuffer bytes, float[] from, int first, int count) {
    if (type() == DataType.FLOAT32) {
      bytes.asFloatBuffer().put(from, first, count);
      return;
    }
    for (int i = 0; i < count; i++) {
      encode(bytes, i * type().size(), from[first + i]);
    }
  }
}
