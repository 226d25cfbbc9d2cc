// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.List;

/**
 * A view of 32-bit integers. Unsigned ones are Java ints with the same bits, as in {@link
 * Integer#toUnsignedLong}.
 *
 * <pre>{@code
 * IntView tokens = device.allocateInts(512);
 * tokens.put(new int[] {101, 7592, 102});
 * }</pre>
 */
public final class IntView extends DeviceView {
  private static final List<DataType> TYPES = List.of(DataType.INT32, DataType.UINT32);

  private IntView(DeviceBuffer buffer, DataType type) {
    super(buffer, type, TYPES);
  }

  private IntView(IntView of, long rows, long cols) {
    super(of, rows, cols);
  }

  /** Returns a view of a whole buffer as {@link DataType#INT32}. */
  public static IntView of(DeviceBuffer buffer) {
    return of(buffer, DataType.INT32);
  }

  /**
   * Returns a view of a whole buffer.
   *
   * @param buffer its bytes must be a multiple of an element's
   * @param type INT32 or UINT32
   * @throws InvalidUsage if the type is another, or the buffer's size is not a multiple of an
   *     element's
   */
  public static IntView of(DeviceBuffer buffer, DataType type) {
    return new IntView(buffer, type);
  }

  @Override
  public IntView slice(long from, long count) {
    return new IntView(part(from, count), type());
  }

  @Override
  public IntView shaped(long rows, long cols) {
    return new IntView(this, rows, cols);
  }

  /**
   * Returns an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public int get(long index) {
    return read(index).getInt(0);
  }

  /** Returns an element of a row; throws {@link InvalidUsage} if there is none. */
  public int get(long row, long col) {
    return get(index(row, col));
  }

  /**
   * Sets an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public void put(long index, int value) {
    write(index, bytes -> bytes.putInt(0, value));
  }

  /** Sets an element of a row; throws {@link InvalidUsage} if there is none. */
  public void put(long row, long col, int value) {
    put(index(row, col), value);
  }

  /**
   * Sets elements from the first on. To begin at another one, use a {@link #slice}.
   *
   * @param values no more than {@link #size()}
   * @throws InvalidUsage if there are more
   */
  public void put(int[] values) {
    InvalidUsage.requireNonNull(values, "put", "values");
    writeAll(values.length, (bytes, first, n) -> bytes.asIntBuffer().put(values, first, n));
  }

  /** Returns a copy of all elements, row by row. */
  public int[] toArray() {
    int[] values = new int[arrayLength()];
    readAll((bytes, first, n) -> bytes.asIntBuffer().get(values, first, n));
    return values;
  }
}
