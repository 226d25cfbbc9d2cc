// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.AVG;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.host.Float8;
import java.nio.ByteBuffer;

/**
 * Elements whose reductions are exact in every type, so that the reference needs no rounding: small
 * integers, for floating-point types too, of which sums divide evenly if the operation is AVG.
 */
public final class ExactElements {
  private ExactElements() {}

  /**
   * A rank's element: 0 to 5, a multiple of nRanks for AVG of floats; negative where the type
   * allows.
   */
  public static long input(DataType type, ReduceOp op, int rank, int nRanks, int index) {
    long value = (index * 7L + rank * 5L) % 6;
    if (type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2) {
      value %= op == AVG ? 2 : 3; // sums of few ranks, at most 8, and products are exact
    }
    long scaled = op == AVG && type.isFloatingPoint() ? value * nRanks : value;
    return isUnsigned(type) || (index + rank) % 3 != 0 ? scaled : -scaled;
  }

  /** Returns the reduction of all ranks' elements; AVG of integers drops the fraction. */
  public static long expected(DataType type, ReduceOp op, int nRanks, int index) {
    long result = input(type, op, 0, nRanks, index);
    for (int rank = 1; rank < nRanks; rank++) {
      long next = input(type, op, rank, nRanks, index);
      result =
          switch (op) {
            case PROD -> Math.multiplyExact(result, next);
            case MIN -> Math.min(result, next);
            case MAX -> Math.max(result, next);
            default -> result + next;
          };
    }
    return op == AVG ? result / nRanks : result;
  }

  private static boolean isUnsigned(DataType type) {
    return type == DataType.UINT8 || type == DataType.UINT32 || type == DataType.UINT64;
  }

  public static void put(ByteBuffer buffer, DataType type, int index, long value) {
    int at = index * type.size();
    switch (type) {
      case INT8, UINT8 -> buffer.put(at, (byte) value);
      case INT32, UINT32 -> buffer.putInt(at, (int) value);
      case INT64, UINT64 -> buffer.putLong(at, value);
      case FLOAT16 -> buffer.putShort(at, HalfFloat.toFloat16(value));
      case BFLOAT16 -> buffer.putShort(at, HalfFloat.toBfloat16(value));
      case FLOAT32 -> buffer.putFloat(at, value);
      case FLOAT64 -> buffer.putDouble(at, value);
      case FLOAT8_E4M3 -> buffer.put(at, Float8.E4M3.fromFloat(value));
      case FLOAT8_E5M2 -> buffer.put(at, Float8.E5M2.fromFloat(value));
      default -> throw new AssertionError(type);
    }
  }
}
