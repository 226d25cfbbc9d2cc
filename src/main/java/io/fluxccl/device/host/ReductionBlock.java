// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.util.function.IntFunction;
import org.agrona.UnsafeApi;

/**
 * A block of elements that one thread reduces in arrays. Memory is copied in and out in bulk, so
 * that the JIT compiler turns the loops over arrays into vector code. This works best if each class
 * has its own arrays and passes them to loops in static methods.
 *
 * @param <A> the arrays of the elements
 */
abstract class ReductionBlock<A> {
  /** The most elements of a block: results and one source stay in the first-level cache. */
  static final int LENGTH = 2048;

  /** The elements. */
  final A a;

  /** The elements that they are combined with. */
  final A b;

  private final long base;
  private final int size;

  ReductionBlock(IntFunction<A> newArray, int size) {
    this.a = newArray.apply(LENGTH);
    this.b = newArray.apply(LENGTH);
    this.base = UnsafeApi.arrayBaseOffset(a.getClass());
    this.size = size;
  }

  static ReductionBlock<?> of(DataType type) {
    return switch (type) {
      case INT8 -> new ByteBlock(true);
      case UINT8 -> new ByteBlock(false);
      case INT32 -> new IntBlock(true);
      case UINT32 -> new IntBlock(false);
      case INT64 -> new LongBlock(true);
      case UINT64 -> new LongBlock(false);
      case FLOAT16 -> new HalfBlock.Float16();
      case BFLOAT16 -> new HalfBlock.Bfloat16();
      case FLOAT8_E4M3 -> new Float8Block(Float8.E4M3);
      case FLOAT8_E5M2 -> new Float8Block(Float8.E5M2);
      case FLOAT32 -> new FloatBlock();
      case FLOAT64 -> new DoubleBlock();
    };
  }

  /** Loads the first source's elements from an address. */
  void load(long address, int count) {
    copyIn(a, base, address, (long) count * size);
  }

  /** Loads the elements to combine with. */
  void loadSource(long address, int count) {
    copyIn(b, base, address, (long) count * size);
  }

  /** Combines the block with the elements at an address; AVG adds. */
  abstract void combine(ReduceOp op, long address, int count);

  /** Divides each element of the block. */
  abstract void divide(int divisor, int count);

  /** Writes the block to an address and keeps it. */
  void store(long address, int count) {
    copyOut(a, base, address, (long) count * size);
  }

  static void copyIn(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(null, address, array, baseOffset, bytes);
  }

  static void copyOut(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(array, baseOffset, null, address, bytes);
  }
}
