// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/** When the passes and the averages of one step began and ended, as a picture. */
final class Timeline {
  private static final int WIDTH = 760;
  private static final int LABEL = 90;
  private static final int ROW = 24;

  private final long start = System.nanoTime();
  private final AtomicLong backwardEnd = new AtomicLong();
  private final ConcurrentLinkedQueue<Map.Entry<String, long[]>> averages =
      new ConcurrentLinkedQueue<>();

  /** Records that an average begins; the result records its end. */
  Runnable begin(String layer) {
    long[] times = {System.nanoTime(), 0};
    averages.add(Map.entry(layer, times));
    return () -> times[1] = System.nanoTime();
  }

  void endBackward() {
    backwardEnd.set(System.nanoTime());
  }

  /** Writes an SVG. Call it when all averages have ended. */
  void write(Path file) throws IOException {
    long end = averages.stream().mapToLong(each -> each.getValue()[1]).max().orElse(start + 1);
    end = Math.max(end, backwardEnd.get());
    int height = ROW * (averages.size() + 2);
    StringBuilder svg = new StringBuilder();
    svg.append(
        text(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif'"
                + " font-size='12'>\n<rect width='%d' height='%d' fill='white'/>\n",
            WIDTH, height, WIDTH, height));
    long first = averages.peek() == null ? start : averages.peek().getValue()[0];
    row(svg, 0, "passes", "#4472c4", start, backwardEnd.get(), end);
    int row = 1;
    for (Map.Entry<String, long[]> each : averages) {
      row(svg, row++, each.getKey(), "#ed7d31", each.getValue()[0], each.getValue()[1], end);
    }
    svg.append(
        text(
            "<text x='%d' y='%d'>%.1f ms; the first average begins at %.1f ms, the passes end at"
                + " %.1f ms</text>\n</svg>\n",
            LABEL,
            ROW * row + 16,
            (end - start) / 1e6,
            (first - start) / 1e6,
            (backwardEnd.get() - start) / 1e6));
    Files.writeString(file, svg);
  }

  private void row(
      StringBuilder svg, int row, String label, String color, long from, long to, long end) {
    double scale = (double) (WIDTH - LABEL - 10) / (end - start);
    svg.append(
        text(
            "<text x='4' y='%d'>%s</text><rect x='%.1f' y='%d' width='%.1f' height='16'"
                + " fill='%s'/>\n",
            ROW * row + 16,
            label,
            LABEL + (from - start) * scale,
            ROW * row + 4,
            Math.max(1, (to - from) * scale),
            color));
  }

  private static String text(String format, Object... arguments) {
    return String.format(Locale.ROOT, format, arguments);
  }
}
