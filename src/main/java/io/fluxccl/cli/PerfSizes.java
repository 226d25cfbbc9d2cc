package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.ArrayList;
import java.util.List;

/**
 * The sizes that a run measures: numbers of elements, or a range of bytes, which are rounded down
 * to whole elements.
 *
 * @param counts numbers of elements, each 1 or more; empty: the range
 * @param min smallest size in bytes
 * @param max largest size in bytes
 * @param step multiplied with or added to a size to get the next one
 * @param multiplies whether the step is multiplied
 */
record PerfSizes(List<Long> counts, long min, long max, long step, boolean multiplies) {
  private static final int MOST_ROWS = 100_000;

  /** Returns sizes that are given as numbers of elements. */
  static PerfSizes ofCounts(List<Long> counts) {
    return new PerfSizes(List.copyOf(counts), 0, 0, 0, false);
  }

  /** Returns a range of sizes. */
  static PerfSizes ofRange(long min, long max, long step, boolean multiplies) {
    return new PerfSizes(List.of(), min, max, step, multiplies);
  }

  /**
   * Returns the numbers of elements; those of a range grow.
   *
   * @param type of the elements
   * @param parts how many times the number a size is: 1, or one for each rank
   * @throws InvalidUsage if a size is less than one element, too large, or there are too many
   */
  List<Long> counts(DataType type, long parts) {
    long unit = type.size() * parts;
    for (long count : counts) {
      if (count > Long.MAX_VALUE / unit) {
        throw new InvalidUsage("count=" + count + " of " + type.label() + " is too large");
      }
    }
    return counts.isEmpty() ? range(type, parts, unit) : counts;
  }

  private List<Long> range(DataType type, long parts, long unit) {
    if (min < unit) {
      throw InvalidUsage.of(
          "minbytes=%d is less than one element of %s%s (%d bytes)",
          min, type.label(), parts == 1 ? "" : " for each of " + parts + " ranks", unit);
    }
    List<Long> sizes = new ArrayList<>(List.of(min / unit));
    for (long size = min; multiplies ? size <= max / step : size <= max - step; ) {
      size = multiplies ? size * step : size + step;
      if (sizes.get(sizes.size() - 1) != size / unit) {
        sizes.add(size / unit);
      }
      if (sizes.size() > MOST_ROWS) {
        throw new InvalidUsage("more than " + MOST_ROWS + " sizes; give a larger step");
      }
    }
    return sizes;
  }

  /** Returns the sizes for the head of the table. */
  String describe() {
    return counts.isEmpty()
        ? String.format(
            "minBytes %d maxBytes %d step: %d(%s)", min, max, step, multiplies ? "factor" : "bytes")
        : "counts " + counts;
  }
}
