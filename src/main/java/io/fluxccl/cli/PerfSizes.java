package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.ArrayList;
import java.util.List;

/** The element counts of a run. Sizes in bytes are rounded down to whole elements. */
sealed interface PerfSizes {
  /** More rows than this is a mistake in the options. */
  int MAX_ROWS = 100_000;

  /**
   * The counts, growing, none twice.
   *
   * @param type of the elements
   * @param parts how many times the count a size is: 1, or one for each rank
   * @return elements, each 1 or more
   * @throws InvalidUsage if a size holds no element of that type
   */
  List<Long> counts(DataType type, long parts);

  /** For the header. */
  String describe();

  /**
   * The counts themselves.
   *
   * @param values elements, each 1 or more
   */
  record Counts(List<Long> values) implements PerfSizes {
    @Override
    public List<Long> counts(DataType type, long parts) {
      for (long count : values) {
        if (count > Long.MAX_VALUE / type.size() / parts) {
          throw new InvalidUsage("count=" + count + " of " + type.label() + " is too large");
        }
      }
      return values;
    }

    @Override
    public String describe() {
      return "counts " + values;
    }
  }

  /**
   * From a size to another.
   *
   * @param min bytes
   * @param max bytes, at least {@code min}
   * @param step multiplied by or added, by {@code factor}
   * @param factor whether the step multiplies
   */
  record Range(long min, long max, long step, boolean factor) implements PerfSizes {
    @Override
    public List<Long> counts(DataType type, long parts) {
      long unit = type.size() * parts;
      if (min < unit) {
        throw new InvalidUsage(
            String.format(
                "minbytes=%d is less than one element of %s%s (%d bytes)",
                min, type.label(), parts == 1 ? "" : " for each of " + parts + " ranks", unit));
      }
      List<Long> counts = new ArrayList<>();
      for (long size = min; ; ) {
        long count = size / unit;
        if (counts.isEmpty() || counts.get(counts.size() - 1) != count) {
          counts.add(count);
        }
        if (counts.size() > MAX_ROWS) {
          throw new InvalidUsage("more than " + MAX_ROWS + " sizes; give a larger step");
        }
        if (factor ? size > max / step : size > max - step) {
          return counts;
        }
        size = factor ? size * step : size + step;
      }
    }

    @Override
    public String describe() {
      return String.format(
          "minBytes %d maxBytes %d step: %d(%s)", min, max, step, factor ? "factor" : "bytes");
    }
  }
}
