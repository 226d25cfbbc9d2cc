// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;

/**
 * The division of a buffer into one chunk for each rank, with equal numbers of elements. Each chunk
 * but the last is a whole number of cache lines, so that no two ranks write one line. Chunks at the
 * end may be empty.
 */
@Experimental
public final class Partition {
  private static final long CACHE_LINE = 64;

  private Partition() {}

  /** Elements of every chunk but the last ones. */
  public static long chunkElements(long count, DataType type, int parts) {
    long perLine = CACHE_LINE / type.size();
    long even = (count + parts - 1) / parts;
    return (even + perLine - 1) / perLine * perLine;
  }
}
