package io.fluxccl.collective;

import io.fluxccl.DataType;

/**
 * How a buffer is cut into one chunk a rank: equal numbers of elements, each chunk but the last a
 * whole number of cache lines, so that no two ranks write one line. Chunks at the end may be empty.
 */
public final class Partition {
  private static final long CACHE_LINE = 64;

  private Partition() {}

  /** Elements of every chunk but the last ones. */
  public static long chunkElements(long count, DataType type, int parts) {
    long perLine = CACHE_LINE / type.size();
    long even = (count + parts - 1) / parts;
    return (even + perLine - 1) / perLine * perLine;
  }

  /** The first element of a part; {@code count} for the end of the last. */
  public static long begin(long count, DataType type, int parts, int part) {
    return Math.min(count, chunkElements(count, type, parts) * part);
  }

  /**
   * Room for a chunk of a buffer of that size, whatever the type of its elements; a whole number of
   * cache lines.
   */
  public static long maxChunkBytes(long bytes, int parts) {
    return ((bytes + parts - 1) / parts + CACHE_LINE) & -CACHE_LINE;
  }
}
