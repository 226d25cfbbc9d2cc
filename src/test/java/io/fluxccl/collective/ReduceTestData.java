// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.host.HostReduction;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.agrona.BufferUtil;

/**
 * Inputs that every rank can compute for all ranks, and their reduction on the host. They contain
 * any bits: NaNs and infinities, words of ones, integers that overflow.
 */
final class ReduceTestData {
  private ReduceTestData() {}

  /** Returns a rank's input. */
  static byte[] input(DataType type, int rank, long seed, int count) {
    SplittableRandom random = new SplittableRandom(seed * 31 + rank);
    ByteBuffer bytes = ByteBuffer.allocate(count * type.size()).order(ByteOrder.LITTLE_ENDIAN);
    while (bytes.hasRemaining()) {
      int kind = random.nextInt(100);
      switch (type.size()) {
        case 1 -> bytes.put((byte) (kind < 2 ? -1 : random.nextInt()));
        case 2 -> bytes.putShort((short) (kind < 2 ? -1 : number16(type, random, kind)));
        case 4 -> bytes.putInt(kind < 2 ? -1 : number32(type, random, kind));
        default -> bytes.putLong(kind < 2 ? -1 : number64(type, random, kind));
      }
    }
    return bytes.array();
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

  /** Returns the reduction of all ranks' inputs. */
  static byte[] reduced(DataType type, ReduceOp op, List<byte[]> inputs) {
    int bytes = inputs.get(0).length;
    List<ByteBuffer> sources = inputs.stream().map(ReduceTestData::direct).toList();
    ByteBuffer result = direct(new byte[bytes]);
    new HostReduction()
        .reduce(
            type,
            op,
            sources.stream().mapToLong(BufferUtil::address).toArray(),
            sources.size(),
            new long[] {BufferUtil.address(result)},
            1,
            bytes / type.size(),
            sources.size());
    Reference.reachabilityFence(sources);
    byte[] reduced = new byte[bytes];
    result.get(0, reduced);
    return reduced;
  }

  private static ByteBuffer direct(byte[] bytes) {
    return BufferUtil.allocateDirectAligned(Math.max(bytes.length, 16), 16).put(0, bytes);
  }

  /** Makes all NaNs equal: those of GPUs and hosts have different bits. */
  static void unifyNans(DataType type, byte[] bytes, int from, int length) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int at = from; at < from + length; at += type.size()) {
      boolean isNan =
          switch (type) {
            case FLOAT64 -> Double.isNaN(buffer.getDouble(at));
            case FLOAT32 -> Float.isNaN(buffer.getFloat(at));
            case FLOAT16 -> (buffer.getShort(at) & 0x7fff) > 0x7c00;
            case BFLOAT16 -> (buffer.getShort(at) & 0x7fff) > 0x7f80;
            case FLOAT8_E4M3 -> (buffer.get(at) & 0x7f) == 0x7f;
            case FLOAT8_E5M2 -> (buffer.get(at) & 0x7f) >= 0x7d;
            default -> false;
          };
      if (isNan) {
        Arrays.fill(bytes, at, at + type.size(), (byte) -1);
      }
    }
  }
}
