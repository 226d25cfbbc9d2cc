package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * Some elements being reduced, in arrays: memory is copied in and out in bulk, so that the loops
 * over arrays become vector code. One subclass a family of types. Used by one thread.
 */
abstract class ReductionBlock {
  /** The most elements that it takes; they and a source's stay in the first-level cache. */
  static final int LENGTH = 2048;

  static ReductionBlock of(DataType type) {
    switch (type) {
      case INT8:
        return new ByteBlock(true);
      case UINT8:
        return new ByteBlock(false);
      case INT32:
        return new IntBlock(true);
      case UINT32:
        return new IntBlock(false);
      case INT64:
        return new LongBlock(true);
      case UINT64:
        return new LongBlock(false);
      case FLOAT16:
        return new Float16Block();
      case BFLOAT16:
        return new Bfloat16Block();
      case FLOAT8_E4M3:
        return new Float8Block(Float8.E4M3);
      case FLOAT8_E5M2:
        return new Float8Block(Float8.E5M2);
      case FLOAT32:
        return new FloatBlock();
      case FLOAT64:
        return new DoubleBlock();
      default:
        throw new AssertionError(type);
    }
  }

  /** Begins with the elements at an address. */
  abstract void load(long address, int count);

  /** Combines what is here with the elements at an address; AVG adds. */
  abstract void combine(ReduceOp op, long address, int count);

  /** Divides what is here. */
  abstract void divide(int divisor, int count);

  /** Writes what is here to an address; what is here stays. */
  abstract void store(long address, int count);

  static void copyIn(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(null, address, array, baseOffset, bytes);
  }

  static void copyOut(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(array, baseOffset, null, address, bytes);
  }
}
