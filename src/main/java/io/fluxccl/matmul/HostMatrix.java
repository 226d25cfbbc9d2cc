// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.HalfFloat;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A matrix in the host's memory, or a vector as one row: for example weights in a mapped file.
 * Parts share the memory, so only elements that are read are loaded from disk. Immutable if the
 * memory is.
 *
 * @param data little-endian, from position 0 on
 * @param type BFLOAT16, FLOAT16 or FLOAT32
 * @param rows 1 or more
 * @param cols 1 or more
 * @param stride elements from one row to the next
 * @param first elements before the first one
 */
@Experimental
public record HostMatrix(
    ByteBuffer data, DataType type, int rows, int cols, int stride, long first) {
  private static final int PIECE_BYTES = 4 << 20;

  /**
   * Checks that the matrix lies in the memory.
   *
   * @throws InvalidUsage if it does not, or if the type is another
   */
  public HostMatrix {
    requireFloats(type);
    if (rows < 1
        || cols < 1
        || stride < cols
        || first < 0
        || first > data.limit()
        || type.bytes(first + (rows - 1L) * stride + cols) > data.limit()) {
      throw InvalidUsage.of(
          "a matrix of %d x %d %s, stride=%d, first=%d, does not lie in %d bytes",
          rows, cols, type, stride, first, data.limit());
    }
    data = data.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  private static void requireFloats(DataType type) {
    if (type != DataType.BFLOAT16 && type != DataType.FLOAT16 && type != DataType.FLOAT32) {
      throw InvalidUsage.of("a matrix of %s; give BFLOAT16, FLOAT16 or FLOAT32", type);
    }
  }

  /** Returns the matrix that fills some memory, row by row. */
  public static HostMatrix of(ByteBuffer data, DataType type, int rows, int cols) {
    return new HostMatrix(data, type, rows, cols, cols, 0);
  }

  /**
   * Returns one of several equal shares of the rows.
   *
   * @throws InvalidUsage if there are no equal shares, or there is no such share
   */
  public HostMatrix rows(int share, int shares) {
    int count = countOf("rows", rows, share, shares);
    return new HostMatrix(data, type, count, cols, stride, first + (long) share * count * stride);
  }

  /**
   * Returns one of several equal shares of the columns.
   *
   * @throws InvalidUsage as {@link #rows(int, int)}
   */
  public HostMatrix cols(int share, int shares) {
    int count = countOf("columns", cols, share, shares);
    return new HostMatrix(data, type, rows, count, stride, first + (long) share * count);
  }

  private static int countOf(String what, int all, int share, int shares) {
    if (share < 0 || share >= shares || all % shares != 0) {
      throw InvalidUsage.of(
          "share %d of %d of a matrix of %d %s; give a number of shares that divides them, and a"
              + " share from 0 to one less",
          share, shares, all, what);
    }
    return all / shares;
  }

  /** Returns an element. */
  public float get(int row, int col) {
    int at = Math.toIntExact(type.bytes(first + (long) row * stride + col));
    return switch (type) {
      case FLOAT32 -> data.getFloat(at);
      case FLOAT16 -> HalfFloat.fromFloat16(data.getShort(at));
      default -> HalfFloat.fromBfloat16(data.getShort(at));
    };
  }

  /**
   * Copies matrices to contiguous device memory, row by row without gaps, and returns when the copy
   * is done. Does not use the heap. A contiguous matrix of the same type is copied by one call.
   *
   * @param target of at least as many bytes
   * @param as the type of the elements on the device: BFLOAT16 or FLOAT16, rounded to nearest, or
   *     FLOAT32
   * @throws InvalidUsage if the type is another
   */
  public static void upload(DeviceBuffer target, DataType as, HostMatrix... matrices) {
    requireFloats(as);
    long offset = 0;
    for (HostMatrix matrix : matrices) {
      matrix.uploadTo(target, offset, as);
      offset += as.bytes((long) matrix.rows * matrix.cols);
    }
  }

  private void uploadTo(DeviceBuffer target, long offset, DataType as) {
    if (as == type && stride == cols) {
      int bytes = Math.toIntExact(type.bytes((long) rows * cols));
      ByteBuffer whole = data.slice(Math.toIntExact(type.bytes(first)), bytes);
      target.upload(offset, whole.order(ByteOrder.LITTLE_ENDIAN));
      return;
    }
    int rowBytes = Math.toIntExact(as.bytes(cols));
    int rowsOfPiece = Math.min(rows, Math.max(1, PIECE_BYTES / rowBytes));
    ByteBuffer piece = ByteBuffer.allocateDirect(Math.multiplyExact(rowsOfPiece, rowBytes));
    piece.order(ByteOrder.LITTLE_ENDIAN);
    for (int begin = 0; begin < rows; begin += rowsOfPiece) {
      int count = Math.min(rowsOfPiece, rows - begin);
      for (int row = 0; row < count; row++) {
        copyRow(begin + row, as, piece, row * rowBytes);
      }
      target.upload(offset + (long) begin * rowBytes, piece.clear().limit(count * rowBytes));
    }
  }

  private void copyRow(int row, DataType as, ByteBuffer target, int at) {
    if (as == type) {
      int from = Math.toIntExact(type.bytes(first + (long) row * stride));
      target.put(at, data, from, Math.toIntExact(type.bytes(cols)));
      return;
    }
    for (int col = 0; col < cols; col++) {
      float value = get(row, col);
      switch (as) {
        case FLOAT32 -> target.putFloat(at + col * Float.BYTES, value);
        case FLOAT16 -> target.putShort(at + col * Short.BYTES, HalfFloat.toFloat16(value));
        default -> target.putShort(at + col * Short.BYTES, HalfFloat.toBfloat16(value));
      }
    }
  }
}
