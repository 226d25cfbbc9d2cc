package io.fluxccl.cli;

import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * One chart with logarithmic axes, sizes by powers of 2 and values by powers of 10. The colours can
 * be told apart by most people, on white and on black.
 */
final class SvgChart {
  /** Belongs into the drawing once. */
  static final String STYLE =
      """
      <style>
        .ground { fill: #ffffff }
        text { fill: #1f2328 }
        .title { font-size: 16px; font-weight: bold }
        .grid { stroke: #d0d7de; stroke-width: 1 }
        .frame { stroke: #57606a; stroke-width: 1; fill: none }
        .series { stroke-width: 2; fill: none }
        @media (prefers-color-scheme: dark) {
          .ground { fill: #0d1117 }
          text { fill: #e6edf3 }
          .grid { stroke: #30363d }
          .frame { stroke: #8b949e }
        }
      </style>
      """;

  private static final String[] COLOURS = {
    "#3987e5", "#e66b2e", "#2e9e6b", "#b964d0", "#c2932b", "#d64f6f", "#2aa5b5", "#7f8994"
  };
  private static final int LEFT = 70;
  private static final int RIGHT = 20;
  private static final int TOP = 28;
  private static final int BOTTOM = 42;
  private static final int MOST_LABELS = 11;
  private static final String[] UNITS = {"", "K", "M", "G", "T"};

  private final String title;
  private final String unit;
  private final int width;
  private final int height;

  /**
   * A point of a series.
   *
   * @param bytes 1 or more
   * @param value drawn when it is more than 0
   */
  record Point(long bytes, double value) {}

  SvgChart(String title, String unit, int width, int height) {
    this.title = title;
    this.unit = unit;
    this.width = width;
    this.height = height;
  }

  /** The range of one axis, as powers; never empty. */
  private record Axis(int low, int high, double base, double from, double to) {
    double at(double value) {
      double power = Math.log(value) / Math.log(base);
      return from + (to - from) * (power - low) / (high - low);
    }
  }

  /**
   * Draws it.
   *
   * @param svg where to
   * @param top of the chart in the drawing
   * @param series by name, in the order of their colours
   */
  void draw(StringBuilder svg, int top, Map<String, List<Point>> series) {
    List<Point> points =
        series.values().stream().flatMap(List::stream).filter(p -> p.value() > 0).toList();
    double bottom = top + height - BOTTOM;
    Axis x =
        axis(points.stream().mapToDouble(Point::bytes).toArray(), 2, LEFT, width - (double) RIGHT);
    Axis y =
        axis(points.stream().mapToDouble(Point::value).toArray(), 10, bottom, top + (double) TOP);
    line(svg, "<g class=\"chart\">");
    text(svg, LEFT, top + 18, "start", title + " (" + unit + ")");
    grid(svg, x, y);
    line(
        svg,
        "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%.0f\"/>",
        LEFT,
        top + TOP,
        width - LEFT - RIGHT,
        bottom - top - TOP);
    int number = 0;
    for (Map.Entry<String, List<Point>> entry : series.entrySet()) {
      drawSeries(svg, entry.getKey(), entry.getValue(), colour(number++), x, y);
    }
    line(svg, "</g>");
  }

  private static Axis axis(double[] values, int base, double from, double to) {
    double least = Double.POSITIVE_INFINITY;
    double most = 0;
    for (double value : values) {
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    if (most == 0) {
      return new Axis(0, 1, base, from, to);
    }
    // What is a power of the base must not be taken for a little more.
    int low = (int) Math.floor(Math.log(least) / Math.log(base) + 1e-9);
    int high = (int) Math.ceil(Math.log(most) / Math.log(base) - 1e-9);
    return new Axis(low, Math.max(high, low + 1), base, from, to);
  }

  private static void grid(StringBuilder svg, Axis x, Axis y) {
    int step = 1 + (x.high() - x.low()) / MOST_LABELS;
    for (int power = x.low(); power <= x.high(); power += step) {
      double at = x.at(Math.pow(2, power));
      gridLine(svg, at, y.from(), at, y.to());
      text(svg, at, y.from() + 18, "middle", bytes(power));
    }
    for (int power = y.low(); power <= y.high(); power++) {
      double at = y.at(Math.pow(10, power));
      gridLine(svg, x.from(), at, x.to(), at);
      text(svg, x.from() - 8, at + 4, "end", decimal(power));
    }
  }

  private static void gridLine(StringBuilder svg, double x1, double y1, double x2, double y2) {
    line(
        svg,
        "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
        x1,
        y1,
        x2,
        y2);
  }

  private static void drawSeries(
      StringBuilder svg, String name, List<Point> points, String colour, Axis x, Axis y) {
    StringBuilder places = new StringBuilder();
    StringBuilder dots = new StringBuilder();
    for (Point point : points) {
      if (point.value() > 0) {
        double atX = x.at(point.bytes());
        double atY = y.at(point.value());
        places.append(String.format(Locale.ROOT, "%.1f,%.1f ", atX, atY));
        line(
            dots,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s, %d bytes: %.4g</title>"
                + "</circle>",
            atX,
            atY,
            colour,
            escape(name),
            point.bytes(),
            point.value());
      }
    }
    line(
        svg,
        "<polyline class=\"series\" data-series=\"%s\" stroke=\"%s\" points=\"%s\"/>",
        escape(name),
        colour,
        places.toString().strip());
    svg.append(dots);
  }

  /** Names of series with their colours, one below the other. */
  static void legend(StringBuilder svg, int top, int step, Collection<String> names) {
    int number = 0;
    for (String name : names) {
      int y = top + step * number + step / 2;
      line(
          svg,
          "<line class=\"series\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\"/>",
          LEFT,
          y,
          LEFT + 30,
          y,
          colour(number++));
      text(svg, LEFT + 40, y + 4, "start", name);
    }
  }

  /** Text as XML has it. */
  static String escape(String text) {
    return text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\"", "&quot;");
  }

  private static String colour(int number) {
    return COLOURS[number % COLOURS.length];
  }

  private static String bytes(int power) {
    int unit = Math.min(power / 10, UNITS.length - 1);
    return (1L << (power - 10 * unit)) + UNITS[unit];
  }

  private static String decimal(int power) {
    return power < 0
        ? String.format(Locale.ROOT, "%." + -power + "f", Math.pow(10, power))
        : String.format(Locale.ROOT, "%.0f", Math.pow(10, power));
  }

  private static void text(StringBuilder svg, double x, double y, String anchor, String text) {
    line(
        svg,
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>",
        x,
        y,
        anchor,
        escape(text));
  }

  private static void line(StringBuilder svg, String form, Object... arguments) {
    svg.append(String.format(Locale.ROOT, form, arguments)).append('\n');
  }
}
