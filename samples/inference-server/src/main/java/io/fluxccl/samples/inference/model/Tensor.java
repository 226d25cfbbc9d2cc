package io.fluxccl.samples.inference.model;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A matrix, or a vector as one row, of a file that is mapped into memory. Parts share the memory;
 * only what is read is fetched from the disk.
 *
 * @param data little-endian, row by row, from position 0
 * @param bfloat16 whether elements have 16 bits, otherwise they are floats of 32
 * @param rows outputs, of a projection's weights
 * @param cols inputs
 * @param stride elements from one row to the next
 * @param offset elements in front of the first one
 */
public record Tensor(
    ByteBuffer data, boolean bfloat16, int rows, int cols, int stride, long offset) {

  /** Returns a matrix in contiguous memory. */
  static Tensor of(ByteBuffer data, boolean bfloat16, int rows, int cols) {
    return new Tensor(data.order(ByteOrder.LITTLE_ENDIAN), bfloat16, rows, cols, cols, 0);
  }

  /** Returns one of several equal shares of the rows. */
  public Tensor rows(int share, int shares) {
    int count = rows / shares;
    long first = offset + (long) share * count * stride;
    return new Tensor(data, bfloat16, count, cols, stride, first);
  }

  /** Returns one of several equal shares of the columns. */
  public Tensor cols(int share, int shares) {
    int count = cols / shares;
    return new Tensor(data, bfloat16, rows, count, stride, offset + (long) share * count);
  }

  /** Returns an element. */
  public float get(int row, int col) {
    int index = Math.toIntExact(offset + (long) row * stride + col);
    return bfloat16
        ? Float.intBitsToFloat(data.getShort(index * Short.BYTES) << 16)
        : data.getFloat(index * Float.BYTES);
  }
}
