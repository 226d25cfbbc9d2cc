// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.common;

import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Work that stands for a user's computation, as long as one likes and checked in no time: each
 * element is multiplied and added to, over and over, in 32 bits. The device's half is {@code
 * work.cuh}.
 */
public final class Arithmetic {
  private static final int MULTIPLIER = 1664525;
  private static final int INCREMENT = 1013904223;
  private static final int SPREAD = 0x9e3779b1;
  private static final int PIECE = 8 << 20;

  private final int steps;
  private final int multiplier;
  private final int increment;

  /**
   * Combines the steps into one multiplication and one addition.
   *
   * @param steps number of steps
   */
  public Arithmetic(int steps) {
    int product = 1;
    int sum = 0;
    for (int i = 0; i < steps; i++) {
      product *= MULTIPLIER;
      sum = sum * MULTIPLIER + INCREMENT;
    }
    this.steps = steps;
    this.multiplier = product;
    this.increment = sum;
  }

  /** Returns the seed of a rank's elements in a round. */
  public static int seed(int rank, int round) {
    return (rank + 1) * 0x01000193 ^ round * 0x5bd1e995;
  }

  /** The argument of a kernel that takes {@code Work} by value. */
  public byte[] forKernel(int seed) {
    return ByteBuffer.allocate(4 * Integer.BYTES)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MULTIPLIER)
        .putInt(INCREMENT)
        .putInt(seed)
        .putInt(steps)
        .array();
  }

  /** Returns the result for an element. */
  public int element(int seed, int index) {
    return (seed + index * SPREAD) * multiplier + increment;
  }

  /**
   * Checks every element of a range.
   *
   * @param memory where
   * @param offset bytes, where the range begins
   * @param size bytes
   * @param seed of the rank and the round that it comes from
   * @param firstIndex of the range's first element
   * @param what the range is called
   * @throws IllegalStateException if one element is wrong
   */
  public void check(
      DeviceBuffer memory, long offset, long size, int seed, int firstIndex, String what) {
    ByteBuffer piece =
        ByteBuffer.allocateDirect((int) Math.min(size, PIECE)).order(ByteOrder.LITTLE_ENDIAN);
    int index = firstIndex;
    for (long done = 0; done < size; done += piece.limit()) {
      piece.clear().limit((int) Math.min(size - done, piece.capacity()));
      memory.download(offset + done, piece);
      piece.flip();
      while (piece.hasRemaining()) {
        int actual = piece.getInt();
        if (actual != element(seed, index)) {
          throw new IllegalStateException(
              what + ": element " + index + " is " + actual + ", expected " + element(seed, index));
        }
        index++;
      }
    }
  }
}
