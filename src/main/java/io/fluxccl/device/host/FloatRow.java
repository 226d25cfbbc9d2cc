// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.HalfFloat;
import java.util.Arrays;

/**
 * A row of floating-point elements as floats, read from memory by address and written there. Grows
 * to the longest row. For one thread.
 */
@Experimental
public final class FloatRow {
  private float[] values = new float[0];

  /** An empty row. */
  public FloatRow() {}

  /** Returns the elements, from the first on; the array may be longer than the row. */
  public float[] values() {
    return values;
  }

  /** Makes the first elements zeros. */
  public void clear(int count) {
    grow(count);
    Arrays.fill(values, 0, count, 0);
  }

  private void grow(int count) {
    if (values.length < count) {
      values = new float[count];
    }
  }

  /** Reads elements of FLOAT32, FLOAT8_E4M3 or of 16 bits. */
  public void read(DataType type, long address, int count) {
    grow(count);
    for (int i = 0; i < count; i++) {
      values[i] = get(type, address, i);
    }
  }

  /** Returns an element of memory. */
  public static float get(DataType type, long address, int index) {
    long at = address + (long) index * type.size();
    return switch (type) {
      case FLOAT32 -> HostMemory.getFloat(at);
      case FLOAT16 -> HalfFloat.fromFloat16(HostMemory.getShortOpaque(at));
      case BFLOAT16 -> HalfFloat.fromBfloat16(HostMemory.getShortOpaque(at));
      case FLOAT8_E4M3 -> Float8.E4M3.toFloat(HostMemory.getByteOpaque(at));
      default -> throw refused(type);
    };
  }

  /** Writes the first elements, rounded to the nearest. */
  public void write(DataType type, long address, int count) {
    for (int i = 0; i < count; i++) {
      long at = address + (long) i * type.size();
      switch (type) {
        case FLOAT32 -> HostMemory.putFloat(at, values[i]);
        case FLOAT16 -> HostMemory.putShortOpaque(at, HalfFloat.toFloat16(values[i]));
        case BFLOAT16 -> HostMemory.putShortOpaque(at, HalfFloat.toBfloat16(values[i]));
        case FLOAT8_E4M3 -> HostMemory.putByteOpaque(at, Float8.E4M3.fromFloat(values[i]));
        default -> throw refused(type);
      }
    }
  }

  /** Rounds the first elements to a type, and keeps them as floats. */
  public void round(DataType type, int count) {
    for (int i = 0; i < count; i++) {
      values[i] =
          switch (type) {
            case FLOAT32 -> values[i];
            case FLOAT16 -> HalfFloat.fromFloat16(HalfFloat.toFloat16(values[i]));
            case BFLOAT16 -> HalfFloat.fromBfloat16(HalfFloat.toBfloat16(values[i]));
            default -> throw refused(type);
          };
    }
  }

  private static InvalidUsage refused(DataType type) {
    return new InvalidUsage(
        "a row of " + type + "; give FLOAT32, FLOAT16, BFLOAT16, or FLOAT8_E4M3 to read or write");
  }
}
