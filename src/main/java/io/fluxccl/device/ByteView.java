// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.List;

/**
 * A view of 8-bit elements: integers, or floating-point numbers that the host does not convert.
 *
 * <pre>{@code
 * ByteView mask = device.allocateBytes(512);
 * mask.put(3, (byte) 1);
 * }</pre>
 */
public final class ByteView extends DeviceView {
  private static final List<DataType> TYPES =
      List.of(DataType.INT8, DataType.UINT8, DataType.FLOAT8_E4M3, DataType.FLOAT8_E5M2);

  private ByteView(DeviceBuffer buffer, DataType type) {
    super(buffer, type, TYPES);
  }

  private ByteView(ByteView of, long rows, long cols) {
    super(of, rows, cols);
  }

  /** Returns a view of a whole buffer as {@link DataType#INT8}. */
  public static ByteView of(DeviceBuffer buffer) {
    return of(buffer, DataType.INT8);
  }

  /**
   * Returns a view of a whole buffer.
   *
   * @param buffer its bytes must be a multiple of an element's
   * @param type any 8-bit type
   * @throws InvalidUsage if the type is another, or the buffer's size is not a multiple of an
   *     element's
   */
  public static ByteView of(DeviceBuffer buffer, DataType type) {
    return new ByteView(buffer, type);
  }

  @Override
  public ByteView slice(long from, long count) {
    return new ByteView(part(from, count), type());
  }

  @Override
  public ByteView shaped(long rows, long cols) {
    return new ByteView(this, rows, cols);
  }

  /**
   * Returns an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public byte get(long index) {
    return read(index).get(0);
  }

  /** Returns an element of a row; throws {@link InvalidUsage} if there is none. */
  public byte get(long row, long col) {
    return get(index(row, col));
  }

  /**
   * Sets an element.
   *
   * @param index 0 to size - 1; counts through all rows
   * @throws InvalidUsage if there is no such element
   */
  public void put(long index, byte value) {
    write(index, bytes -> bytes.put(0, value));
  }

  /** Sets an element of a row; throws {@link InvalidUsage} if there is none. */
  public void put(long row, long col, byte value) {
    put(index(row, col), value);
  }

  /**
   * Sets elements from the first on. To begin at another one, use a {@link #slice}.
   *
   * @param values no more than {@link #size()}
   * @throws InvalidUsage if there are more
   */
  public void put(byte[] values) {
    InvalidUsage.requireNonNull(values, "put", "values");
    writeAll(values.length, (bytes, first, n) -> bytes.put(values, first, n));
  }

  /** Returns a copy of all elements, row by row. */
  public byte[] toArray() {
    byte[] values = new byte[arrayLength()];
    readAll((bytes, first, n) -> bytes.get(values, first, n));
    return values;
  }
}
