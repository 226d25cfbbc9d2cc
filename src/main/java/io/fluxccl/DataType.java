// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/**
 * The element types that collectives work on, with their size and the name nccl-tests gives them.
 * They are in the order of NCCL's {@code ncclDataType_t}, so that an ordinal is NCCL's number.
 */
public enum DataType {
  /** Signed 8-bit integer. */
  INT8(1, "int8"),
  /** Unsigned 8-bit integer. */
  UINT8(1, "uint8"),
  /** Signed 32-bit integer. */
  INT32(4, "int32"),
  /** Unsigned 32-bit integer. */
  UINT32(4, "uint32"),
  /** Signed 64-bit integer. */
  INT64(8, "int64"),
  /** Unsigned 64-bit integer. */
  UINT64(8, "uint64"),
  /** IEEE 754 binary16. */
  FLOAT16(2, "half"),
  /** IEEE 754 binary32. */
  FLOAT32(4, "float"),
  /** IEEE 754 binary64. */
  FLOAT64(8, "double"),
  /** The upper half of a binary32. */
  BFLOAT16(2, "bfloat16"),
  /**
   * 8 bits, of which 4 are the exponent and 3 the fraction: up to 448, NaN but no infinity.
   * Combined as binary32 and rounded once; values that are too large become the largest.
   */
  FLOAT8_E4M3(1, "f8e4m3"),
  /**
   * 8 bits, of which 5 are the exponent and 2 the fraction: up to 57344, NaN and infinities.
   * Combined as binary32 and rounded once; values that are too large, infinities included, become
   * the largest.
   */
  FLOAT8_E5M2(1, "f8e5m2");

  private final int size;
  private final String label;

  DataType(int size, String label) {
    this.size = size;
    this.label = label;
  }

  /** Returns the bytes of one element. */
  public int size() {
    return size;
  }

  /**
   * Returns the size of {@code elements} elements in bytes.
   *
   * @throws InvalidUsage if the size exceeds a long
   */
  public long bytes(long elements) {
    if (elements > Long.MAX_VALUE / size) {
      throw InvalidUsage.of("%d elements of %s are more bytes than there can be", elements, this);
    }
    return elements * size;
  }

  /**
   * Returns the number of elements in {@code bytes} bytes.
   *
   * @param bytes of a buffer
   * @param where the operation, for the message
   * @throws InvalidUsage if {@code bytes} is not a multiple of the element size
   */
  public long elements(long bytes, Object where) {
    if (bytes % size != 0) {
      throw InvalidUsage.of(
          "%s: the buffer's %d bytes are no multiple of the %d bytes of %s; allocate a multiple, or"
              + " give a slice",
          where, bytes, size, this);
    }
    return bytes / size;
  }

  /** Returns the name in nccl-tests' notation, for example {@code half}. */
  public String label() {
    return label;
  }

  /** Returns whether values have a fraction. */
  public boolean isFloatingPoint() {
    return switch (this) {
      case FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 -> true;
      default -> false;
    };
  }

  /**
   * Returns the type of that name.
   *
   * @param label a name in nccl-tests' notation
   * @return the type
   * @throws InvalidUsage if no type has that name; the message lists those there are
   */
  public static DataType ofLabel(String label) {
    return Text.choose("type", label, values(), DataType::label);
  }
}
