// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;

/**
 * How a buffer is cut into one chunk a rank: equal numbers of elements, each chunk but the last a
 * whole number of cache lines, so that no two ranks write one line. Chunks at the end may be empty.
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
