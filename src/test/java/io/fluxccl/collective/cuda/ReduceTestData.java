// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostReduction;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import org.agrona.BufferUtil;

/**
 * Inputs that every rank can compute for all ranks, and their reduction on the host. They contain
 * any bits: NaNs and infinities, words of ones, integers that overflow.
 */
final class ReduceTestData {
  private ReduceTestData() {}

  /** Returns a rank's input. */
  static ByteBuffer input(DataType type, int rank, long seed, int count) {
    SplittableRandom random = new SplittableRandom(seed * 31 + rank);
    ByteBuffer bytes = allocate(count * type.size());
    for (int i = 0; i < count; i++) {
      int at = i * type.size();
      int kind = random.nextInt(100);
      switch (type.size()) {
        case 1 -> bytes.put(at, (byte) (kind < 2 ? -1 : random.nextInt()));
        case 2 -> bytes.putShort(at, (short) (kind < 2 ? -1 : number16(type, random, kind)));
        case 4 -> bytes.putInt(at, kind < 2 ? -1 : number32(type, random, kind));
        default -> bytes.putLong(at, kind < 2 ? -1 : number64(type, random, kind));
      }
    }
    return bytes;
  }

  private static int number16(DataType type, SplittableRandom random, int kind) {
    int bits = Float.floatToRawIntBits((float) (random.nextDouble() * 8 - 4)) >>> 16;
    return type == DataType.BFLOAT16 && kind > 4
        ? bits
        : kind > 4 ? 0x3000 + random.nextInt(0x1800) : random.nextInt();
  }

  private static int number32(DataType type, SplittableRandom random, int kind) {
    return type.isFloatingPoint() && kind > 4
        ? Float.floatToRawIntBits((float) (random.nextDouble() * 8 - 4))
        : random.nextInt();
  }

  private static long number64(DataType type, SplittableRandom random, int kind) {
    return type.isFloatingPoint() && kind > 4
        ? Double.doubleToRawLongBits(random.nextDouble() * 8 - 4) | (kind < 20 ? 0xffffffffL : 0)
        : random.nextLong();
  }

  static ByteBuffer allocate(int bytes) {
    return BufferUtil.allocateDirectAligned(Math.max(bytes, 16), 16).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns all ranks' inputs. */
  static List<ByteBuffer> inputs(DataType type, int nRanks, long seed, int count) {
    return IntStream.range(0, nRanks).mapToObj(rank -> input(type, rank, seed, count)).toList();
  }

  /** Returns the reduction of the first elements of all ranks' inputs. */
  static ByteBuffer reduced(DataType type, ReduceOp op, List<ByteBuffer> inputs, int count) {
    int nRanks = inputs.size();
    long[] sources = inputs.stream().mapToLong(BufferUtil::address).toArray();
    ByteBuffer result = allocate(count * type.size());
    new HostReduction()
        .reduce(
            type, op, sources, nRanks, new long[] {BufferUtil.address(result)}, 1, count, nRanks);
    // The inputs must stay reachable until here.
    java.lang.ref.Reference.reachabilityFence(inputs);
    return result;
  }

  private static ByteBuffer all(ByteBuffer bytes) {
    return bytes.duplicate().order(bytes.order()).clear();
  }

  static void upload(DeviceBuffer to, long offset, ByteBuffer bytes, int length) {
    if (length > 0) {
      to.upload(offset, all(bytes).limit(length));
    }
  }

  static ByteBuffer download(DeviceBuffer from, long offset, int length) {
    ByteBuffer bytes = allocate(length);
    if (length > 0) {
      from.download(offset, all(bytes).limit(length));
    }
    return bytes;
  }

  /** Returns the first element that differs, or -1; all NaNs are equal. */
  static int mismatch(DataType type, ByteBuffer expected, int from, ByteBuffer actual, int count) {
    for (int i = 0; i < count; i++) {
      int at = i * type.size();
      int want = (from + i) * type.size();
      boolean same =
          switch (type.size()) {
            case 1 ->
                expected.get(want) == actual.get(at)
                    || bothNan8(type, expected.get(want), actual.get(at));
            case 2 ->
                expected.getShort(want) == actual.getShort(at)
                    || bothNan16(type, expected.getShort(want), actual.getShort(at));
            case 4 ->
                expected.getInt(want) == actual.getInt(at)
                    || type.isFloatingPoint()
                        && Float.isNaN(expected.getFloat(want))
                        && Float.isNaN(actual.getFloat(at));
            default ->
                expected.getLong(want) == actual.getLong(at)
                    || type.isFloatingPoint()
                        && Double.isNaN(expected.getDouble(want))
                        && Double.isNaN(actual.getDouble(at));
          };
      if (!same) {
        return i;
      }
    }
    return -1;
  }

  private static boolean bothNan8(DataType type, byte a, byte b) {
    int least = type == DataType.FLOAT8_E4M3 ? 0x7f : type == DataType.FLOAT8_E5M2 ? 0x7d : 0x80;
    return (a & 0x7f) >= least && (b & 0x7f) >= least;
  }

  private static boolean bothNan16(DataType type, short a, short b) {
    int infinity = type == DataType.FLOAT16 ? 0x7c00 : type == DataType.BFLOAT16 ? 0x7f80 : 0x7fff;
    return (a & 0x7fff) > infinity && (b & 0x7fff) > infinity;
  }
}
