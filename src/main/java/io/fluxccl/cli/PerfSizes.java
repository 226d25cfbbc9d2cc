// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/**
 * The options of {@code perf} that give the sizes: numbers of elements, or a range of bytes, which
 * are rounded down to whole elements.
 */
final class PerfSizes {
  private static final int MOST_ROWS = 100_000;

  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Smallest size: bytes, or with a suffix K, M, G. Default 1K.")
  private Long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Largest size. Default 16M. Sizes are rounded down to whole elements.")
  private Long maxBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "FACTOR",
      description = "Multiply the size by this from row to row. Default 2.")
  private Long factor;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Add this to the size from row to row, instead of -f.")
  private Long stepBytes;

  @Option(
      names = "--counts",
      paramLabel = "COUNT",
      split = ",",
      description = "Numbers of elements instead of sizes; for example 1,3,1023,65537.")
  private List<Long> counts;

  /**
   * Checks the options.
   *
   * @throws InvalidUsage if an option is out of range or two contradict each other
   */
  void check() {
    boolean range = minBytes != null || maxBytes != null || factor != null || stepBytes != null;
    PerfOptions.require(counts == null || !range, "--counts excludes -b, -e, -f and -i");
    PerfOptions.require(factor == null || stepBytes == null, "-f and -i exclude each other");
    PerfOptions.requireRange("stepfactor", factor, 2);
    PerfOptions.require(min() <= max(), "minbytes=%d is more than maxbytes=%d", min(), max());
    if (counts != null) {
      counts.forEach(count -> PerfOptions.requireRange("count", count, 1));
    }
  }

  private long min() {
    return minBytes == null ? 1L << 10 : minBytes;
  }

  private long max() {
    return maxBytes == null ? Math.max(min(), 16L << 20) : maxBytes;
  }

  /**
   * Returns the numbers of elements; those of a range grow.
   *
   * @param type of the elements
   * @param parts how many times the number a size is: 1, or one for each rank
   * @param ascending whether to sort given numbers, as a tuning file needs them
   * @throws InvalidUsage if a size is less than one element, too large, or there are too many
   */
  List<Long> counts(DataType type, long parts, boolean ascending) {
    long unit = type.size() * parts;
    if (counts == null) {
      return range(type, parts, unit);
    }
    for (long count : counts) {
      if (count > Long.MAX_VALUE / unit) {
        throw new InvalidUsage("count=" + count + " of " + type.label() + " is too large");
      }
    }
    return ascending ? counts.stream().distinct().sorted().toList() : counts;
  }

  private List<Long> range(DataType type, long parts, long unit) {
    if (min() < unit) {
      throw InvalidUsage.of(
          "minbytes=%d is less than one element of %s%s (%d bytes)",
          min(), type.label(), parts == 1 ? "" : " for each of " + parts + " ranks", unit);
    }
    List<Long> sizes = new ArrayList<>(List.of(min() / unit));
    for (long size = min(); hasNext(size); ) {
      size = stepBytes == null ? size * factor() : size + stepBytes;
      if (sizes.get(sizes.size() - 1) != size / unit) {
        sizes.add(size / unit);
      }
      if (sizes.size() > MOST_ROWS) {
        throw new InvalidUsage("more than " + MOST_ROWS + " sizes; give a larger step");
      }
    }
    return sizes;
  }

  private boolean hasNext(long size) {
    return stepBytes == null ? size <= max() / factor() : size <= max() - stepBytes;
  }

  private long factor() {
    return factor == null ? 2 : factor;
  }

  /** Returns the sizes for the head of the table. */
  String describe() {
    if (counts != null) {
      return "counts " + counts;
    }
    String step = stepBytes == null ? factor() + "(factor)" : stepBytes + "(bytes)";
    return Text.of("minBytes %d maxBytes %d step: %s", min(), max(), step);
  }

  /** Converts numbers of bytes as people write them: {@code 64}, {@code 1K}, {@code 16M}. */
  private static final class ByteSize implements ITypeConverter<Long> {
    private static final Pattern FORM = Pattern.compile("(\\d{1,18})([KMGT]?)(?:I?B)?");

    @Override
    public Long convert(String text) {
      Matcher matcher = FORM.matcher(text.toUpperCase(Locale.ROOT));
      if (!matcher.matches() || Long.parseLong(matcher.group(1)) == 0) {
        throw new TypeConversionException(
            "'" + text + "' is no size; give bytes from 1, or with a suffix, such as 1K, 16M, 1G");
      }
      int power = matcher.group(2).isEmpty() ? 0 : "KMGT".indexOf(matcher.group(2)) + 1;
      try {
        return Math.multiplyExact(Long.parseLong(matcher.group(1)), 1L << (10 * power));
      } catch (ArithmeticException e) {
        throw new TypeConversionException("'" + text + "' is too large");
      }
    }
  }
}
