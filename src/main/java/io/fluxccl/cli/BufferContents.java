// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.collections.Int2ObjectCache;

/**
 * Writes patterns into the buffers of a rank and counts wrong elements afterwards. Outputs are
 * poisoned first, so that a missing write is found. Inputs beside the output must stay as they are,
 * and so must buffers that a rank does not use. Guard bytes after each buffer show writes past its
 * end.
 */
final class BufferContents {
  private static final int GUARD_BYTES = 64;
  private static final byte GUARD = (byte) 0xa5;
  private static final byte POISON = (byte) 0xdb;
  private static final int POISONED = -2;
  private static final int MOST_BLOCKS = 16;

  private final PerfRank rank;
  private final ReductionPattern pattern;
  private final int elementSize;
  private final ByteBuffer actual;
  private final ByteBuffer guard = filled(GUARD_BYTES, GUARD);

  // By rank, or REDUCED, or POISONED.
  private final Int2ObjectCache<ByteBuffer> blocks =
      new Int2ObjectCache<>(1, MOST_BLOCKS, evicted -> {});

  BufferContents(PerfRank rank, ReductionPattern pattern, DataType type) {
    this.rank = rank;
    this.pattern = pattern;
    this.elementSize = type.size();
    this.actual =
        ByteBuffer.allocateDirect(ReductionPattern.PERIOD * elementSize)
            .order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns the size of a buffer for elements of {@code bytes} bytes. */
  static long sizeFor(long bytes) {
    return bytes + GUARD_BYTES;
  }

  /** Writes this rank's input, poison where its output goes, and the guards after them. */
  void upload(DataLayout layout, BufferAliasing placement) {
    if (placement == BufferAliasing.OUT_OF_PLACE) {
      // Also on a rank without input, to detect a collective that reads it there.
      write(PerfRank.Buffer.INPUT, 0, layout.inputExtent(), rank.rank());
      guard(PerfRank.Buffer.INPUT, layout.inputExtent());
      write(PerfRank.Buffer.OUTPUT, 0, layout.outputExtent(), POISONED);
      guard(PerfRank.Buffer.OUTPUT, layout.outputExtent());
      return;
    }
    long extent = layout.extent();
    write(PerfRank.Buffer.OUTPUT, 0, extent, POISONED);
    if (layout.hasInput()) {
      write(
          PerfRank.Buffer.OUTPUT, layout.inputOffset(placement), inputLength(layout), rank.rank());
    }
    guard(PerfRank.Buffer.OUTPUT, extent);
  }

  /** Returns how many elements are wrong, and how many guard bytes have changed. */
  long wrongElements(DataLayout layout, BufferAliasing placement) {
    long wrong = 0;
    long outputOffset = layout.outputOffset(placement);
    for (DataLayout.Segment part : layout.segments()) {
      wrong +=
          differences(
              PerfRank.Buffer.OUTPUT,
              outputOffset + part.target(),
              part.length(),
              part.source(),
              part.from());
    }
    if (layout.shape().collective() == Collective.COMBINE) {
      wrong += combinedDifferences(layout);
    }
    if (placement == BufferAliasing.OUT_OF_PLACE) {
      wrong += differences(PerfRank.Buffer.INPUT, 0, layout.inputExtent(), rank.rank(), 0);
      wrong += guardDifferences(PerfRank.Buffer.INPUT, layout.inputExtent());
      if (!layout.hasOutput()) {
        wrong += differences(PerfRank.Buffer.OUTPUT, 0, layout.outputExtent(), POISONED, 0);
      }
      return wrong + guardDifferences(PerfRank.Buffer.OUTPUT, layout.outputExtent());
    }
    long extent = layout.extent();
    long outputEnd = layout.hasOutput() ? outputOffset + layout.outputExtent() : outputOffset;
    wrong += touchedInPlace(layout, 0, outputOffset);
    wrong += touchedInPlace(layout, outputEnd, extent);
    return wrong + guardDifferences(PerfRank.Buffer.OUTPUT, extent);
  }

  /** Returns how many sums of experts' outputs are wrong. */
  private long combinedDifferences(DataLayout layout) {
    int[][] places = ExpertLayout.of(layout.shape(), layout.nRanks()).placesOf(layout.rank());
    long wrong = 0;
    for (int token = 0; token < places[0].length; token++) {
      long[] from = new long[places.length];
      for (int rank = 0; rank < from.length; rank++) {
        from[rank] =
            places[rank][token] < 0 ? -1 : (long) places[rank][token] * ExpertLayout.HIDDEN;
      }
      ByteBuffer wanted = pattern.sums(from, ExpertLayout.HIDDEN);
      long at = (long) token * ExpertLayout.HIDDEN * elementSize;
      wrong += differences(PerfRank.Buffer.OUTPUT, at, wanted, elementSize);
    }
    return wrong;
  }

  /** Returns how many elements of a range without output have changed in place. */
  private long touchedInPlace(DataLayout layout, long from, long to) {
    long input = layout.inputOffset(BufferAliasing.IN_PLACE);
    long begin = Math.min(Math.max(input, from), to);
    long end = Math.min(Math.max(input + inputLength(layout), from), to);
    return differences(PerfRank.Buffer.OUTPUT, from, begin - from, POISONED, 0)
        + differences(PerfRank.Buffer.OUTPUT, begin, end - begin, rank.rank(), begin - input)
        + differences(PerfRank.Buffer.OUTPUT, end, to - end, POISONED, 0);
  }

  private static long inputLength(DataLayout layout) {
    return layout.hasInput() ? layout.inputExtent() : 0;
  }

  private void write(PerfRank.Buffer buffer, long offset, long length, int source) {
    ByteBuffer block = block(source);
    for (long done = 0; done < length; done += ReductionPattern.PERIOD) {
      int part = (int) Math.min(ReductionPattern.PERIOD, length - done);
      rank.upload(buffer, (offset + done) * elementSize, block.slice(0, part * elementSize));
    }
  }

  private void guard(PerfRank.Buffer buffer, long extent) {
    rank.upload(buffer, extent * elementSize, guard.duplicate());
  }

  private long guardDifferences(PerfRank.Buffer buffer, long extent) {
    return differences(buffer, extent * elementSize, guard.duplicate(), 1);
  }

  private long differences(
      PerfRank.Buffer buffer, long offset, long length, int source, long from) {
    ByteBuffer block = block(source);
    long wrong = 0;
    for (long done = 0; done < length; ) {
      int at = (int) ((from + done) % ReductionPattern.PERIOD);
      int part = (int) Math.min(ReductionPattern.PERIOD - at, length - done);
      ByteBuffer wanted = block.slice(at * elementSize, part * elementSize);
      wrong += differences(buffer, (offset + done) * elementSize, wanted, elementSize);
      done += part;
    }
    return wrong;
  }

  private long differences(PerfRank.Buffer buffer, long offset, ByteBuffer wanted, int unit) {
    ByteBuffer got = actual.slice(0, wanted.remaining());
    rank.download(buffer, offset, got);
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

  private ByteBuffer block(int source) {
    return blocks.computeIfAbsent(
        source,
        absent ->
            switch (absent) {
              case POISONED -> filled(ReductionPattern.PERIOD * elementSize, POISON);
              case DataLayout.REDUCED -> pattern.expected();
              default -> pattern.input(absent);
            });
  }

  private static ByteBuffer filled(int length, byte value) {
    ByteBuffer filled = ByteBuffer.allocateDirect(length);
    while (filled.hasRemaining()) {
      filled.put(value);
    }
    return filled.flip();
  }
}
