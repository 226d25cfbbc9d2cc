// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.function.Consumer;

/**
 * A view of a {@link DeviceBuffer} as elements of one type, in one or several contiguous rows. A
 * view covers its whole buffer and has no state of its own. Views of one buffer share its memory,
 * and closing a view closes the buffer.
 *
 * <pre>{@code
 * try (FloatView x = device.allocateFloats(1024)) {
 *   x.put(1, 2.5f);
 *   collectives.allReduce(x, ReduceOp.SUM).block();
 *   float[] sums = x.toArray();
 * }
 * }</pre>
 *
 * <p>Reads and writes copy as {@link DeviceBuffer#upload} and {@link DeviceBuffer#download} do:
 * they return when the copy is done, and are not ordered with streams, so wait for a stream's work
 * first. All are bounds-checked. Each access to a single element is a separate copy, which on a GPU
 * takes microseconds. For many elements use arrays, or {@link #asByteBuffer()} if the memory is the
 * host's. They throw {@link InvalidUsage} if the buffer is closed.
 *
 * <p>Thread-safe, unless two threads access the same elements and one of them writes.
 */
public abstract sealed class DeviceView implements AutoCloseable
    permits FloatView, IntView, ByteView {
  /** The most bytes of one copy; a multiple of every element's size. */
  private static final int PIECE = 64 * 1024;

  private final DeviceBuffer buffer;
  private final DataType type;
  private final long size;
  private final long rows;
  private final long cols;

  /** Creates a view of one row. */
  DeviceView(DeviceBuffer buffer, DataType type, List<DataType> allowed) {
    String view = getClass().getSimpleName();
    this.buffer = InvalidUsage.requireNonNull(buffer, view, "buffer");
    this.type = InvalidUsage.requireNonNull(type, view, "type");
    if (!allowed.contains(type)) {
      throw InvalidUsage.of("%s: type=%s; give one of %s", view, type, allowed);
    }
    this.size = type.elements(buffer.size(), view);
    this.rows = 1;
    this.cols = size;
  }

  /** Creates a view of the same buffer with other rows. */
  DeviceView(DeviceView of, long rows, long cols) {
    if (rows < 1 || cols < 1 || of.size / rows != cols || of.size % rows != 0) {
      throw InvalidUsage.of(
          "rows=%d cols=%d do not make the %d elements of %s", rows, cols, of.size, of);
    }
    this.buffer = of.buffer;
    this.type = of.type;
    this.size = of.size;
    this.rows = rows;
    this.cols = cols;
  }

  /** Returns the number of elements of a matrix; refuses rows or columns below 1. */
  static long elements(long rows, long cols) {
    if (rows < 1 || cols < 1 || Math.multiplyHigh(rows, cols) != 0 || rows * cols < 0) {
      throw InvalidUsage.of(
          "rows=%d cols=%d; give 1 or more of each, and no more than fit memory", rows, cols);
    }
    return rows * cols;
  }

  /** Returns the memory. */
  public final DeviceBuffer buffer() {
    return buffer;
  }

  /** Returns the type of the elements in memory. */
  public final DataType type() {
    return type;
  }

  /** Returns the number of elements. */
  public final long size() {
    return size;
  }

  /** Returns the number of rows; 1 unless the view was made with a shape. */
  public final long rows() {
    return rows;
  }

  /** Returns the number of elements in a row. */
  public final long cols() {
    return cols;
  }

  /**
   * Returns a view of a part, as one row. Closing the part does nothing.
   *
   * @param from its first element
   * @param count its elements
   * @throws InvalidUsage if the part does not lie within this view
   */
  public abstract DeviceView slice(long from, long count);

  /**
   * Returns a view of the same memory with another shape.
   *
   * @param rows number of rows, 1 or more
   * @param cols elements in a row, 1 or more
   * @throws InvalidUsage if that is another number of elements than {@link #size()}
   */
  public abstract DeviceView shaped(long rows, long cols);

  /**
   * Returns the memory itself, little-endian, if it is the host's: for loops over many elements. It
   * does not check whether the view is open. Don't use it after the buffer is closed: the memory
   * may then be unmapped, and the JVM would crash.
   *
   * @return elements as they are in memory; position 0, limit the bytes of this view
   * @throws InvalidUsage if the memory is a GPU's
   */
  public final ByteBuffer asByteBuffer() {
    return buffer
        .asByteBuffer()
        .orElseThrow(
            () ->
                new InvalidUsage(
                    "asByteBuffer: host code can't access memory of "
                        + buffer.device().description()
                        + "; use put and toArray"));
  }

  /** Closes the buffer. Idempotent. */
  @Override
  public final void close() {
    buffer.close();
  }

  @Override
  public final String toString() {
    return Text.of("%s(%s, rows=%d, cols=%d)", getClass().getSimpleName(), type, rows, cols);
  }

  /** Returns the buffer of a part. */
  final DeviceBuffer part(long from, long count) {
    if (from < 0 || count < 0 || from > size - count) {
      throw InvalidUsage.of("slice from=%d count=%d is outside %s", from, count, this);
    }
    return buffer.slice(from * type.size(), count * type.size());
  }

  /** Returns the index of an element in a row. */
  final long index(long row, long col) {
    if (row < 0 || row >= rows || col < 0 || col >= cols) {
      throw InvalidUsage.of("row=%d col=%d is outside %s", row, col, this);
    }
    return row * cols + col;
  }

  /** Returns the bytes of one element, to be read at 0. */
  final ByteBuffer read(long index) {
    ByteBuffer bytes = oneAt(index);
    buffer.download(index * type.size(), bytes);
    return bytes.clear();
  }

  /** Writes one element, which the consumer puts at 0. */
  final void write(long index, Consumer<ByteBuffer> encode) {
    ByteBuffer bytes = oneAt(index);
    encode.accept(bytes);
    buffer.upload(index * type.size(), bytes);
  }

  private ByteBuffer oneAt(long index) {
    if (index < 0 || index >= size) {
      throw InvalidUsage.of("index=%d is outside %s", index, this);
    }
    return piece(1);
  }

  /** Copies elements between an array and a piece of bytes. */
  interface Piece {
    /**
     * Copies {@code count} elements between the array, from {@code first} on, and the bytes, from 0
     * on.
     */
    void copy(ByteBuffer bytes, int first, int count);
  }

  /** Writes an array's elements from the start of this view. */
  final void writeAll(int count, Piece encode) {
    if (count > size) {
      throw InvalidUsage.of("put of %d elements is more than %s has", count, this);
    }
    int most = PIECE / type.size();
    ByteBuffer bytes = piece(Math.min(count, most));
    for (int done = 0; done < count; done += most) {
      int n = Math.min(most, count - done);
      encode.copy(bytes.clear(), done, n);
      buffer.upload((long) done * type.size(), bytes.clear().limit(n * type.size()));
    }
  }

  /** Reads all elements to an array of {@link #arrayLength()}. */
  final void readAll(Piece decode) {
    int count = arrayLength();
    int most = PIECE / type.size();
    ByteBuffer bytes = piece(Math.min(count, most));
    for (int done = 0; done < count; done += most) {
      int n = Math.min(most, count - done);
      buffer.download((long) done * type.size(), bytes.clear().limit(n * type.size()));
      decode.copy(bytes.clear(), done, n);
    }
  }

  /** Returns the length of an array of all elements. */
  final int arrayLength() {
    if (size > Integer.MAX_VALUE - 8) {
      throw InvalidUsage.of("toArray: %s has more elements than an array; use slices", this);
    }
    return (int) size;
  }

  private ByteBuffer piece(int elements) {
    return ByteBuffer.allocate(elements * type.size()).order(ByteOrder.LITTLE_ENDIAN);
  }
}
