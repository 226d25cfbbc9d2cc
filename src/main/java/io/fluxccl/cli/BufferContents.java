package io.fluxccl.cli;

import io.fluxccl.DataType;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Writes a pattern into a rank's buffer and counts what is wrong in it afterwards, block by block.
 * Behind the elements lie guard bytes, so that writing past the end is noticed too.
 */
final class BufferContents {
  private static final int GUARD_BYTES = 64;
  private static final byte GUARD = (byte) 0xa5;

  private final PerfRank rank;
  private final int elementSize;
  private final ByteBuffer input;
  private final ByteBuffer expected;
  private final ByteBuffer actual;
  private final ByteBuffer guard = ByteBuffer.allocateDirect(GUARD_BYTES);

  BufferContents(PerfRank rank, ReductionPattern pattern, DataType type) {
    this.rank = rank;
    this.elementSize = type.size();
    this.input = pattern.input(rank.rank());
    this.expected = pattern.expected();
    this.actual = ByteBuffer.allocateDirect(expected.capacity()).order(ByteOrder.LITTLE_ENDIAN);
    while (guard.hasRemaining()) {
      guard.put(GUARD);
    }
    guard.flip();
  }

  /** The size of a buffer for so many bytes of elements. */
  static long sizeFor(long bytes) {
    return bytes + GUARD_BYTES;
  }

  /** Writes this rank's input, and the guard behind it. */
  void upload(long count) {
    long bytes = count * elementSize;
    for (long offset = 0; offset < bytes; offset += input.capacity()) {
      rank.upload(offset, input.slice(0, (int) Math.min(input.capacity(), bytes - offset)));
    }
    rank.upload(bytes, guard.duplicate());
  }

  /** How many elements are not as expected, and how many guard bytes are not as they were. */
  long wrongElements(long count) {
    long bytes = count * elementSize;
    long wrong = 0;
    for (long offset = 0; offset < bytes; offset += expected.capacity()) {
      int length = (int) Math.min(expected.capacity(), bytes - offset);
      wrong += differences(offset, expected.slice(0, length), elementSize);
    }
    return wrong + differences(bytes, guard.duplicate(), 1);
  }

  private long differences(long offset, ByteBuffer wanted, int unit) {
    ByteBuffer got = actual.slice(0, wanted.remaining());
    rank.download(offset, got);
    got.flip();
    int length = wanted.remaining();
    int at = wanted.mismatch(got);
    long differences = 0;
    while (at >= 0) {
      differences++;
      int next = (at / unit + 1) * unit;
      int more = wanted.slice(next, length - next).mismatch(got.slice(next, length - next));
      at = more < 0 ? -1 : next + more;
    }
    return differences;
  }
}
