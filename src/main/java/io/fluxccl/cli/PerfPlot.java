package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Draws time and bus bandwidth over size into an SVG file, for this library and the one it is
 * compared with, each in its faster placement. The file is replaced after each row.
 */
final class PerfPlot implements PerfListener {
  private static final int WIDTH = 760;
  private static final int TITLE_HEIGHT = 40;
  private static final int CHART_HEIGHT = 330;
  private static final int LEGEND_LINE = 20;

  private final Path file;
  private final Path next;
  private final List<PerfRow> rows = new ArrayList<>();
  private Optional<String> peer = Optional.empty();
  private int nRanks;

  /**
   * Writes an empty drawing at once.
   *
   * @param file where
   * @throws InvalidUsage if it can't be written
   */
  PerfPlot(Path file) {
    if (Files.exists(file) && !Files.isRegularFile(file)) {
      throw new InvalidUsage("plot=" + file + " is no regular file");
    }
    this.file = file;
    this.next = file.resolveSibling("." + file.getFileName() + "." + ProcessHandle.current().pid());
    write();
  }

  @Override
  public void started(PerfPlan plan, List<String> devices, Optional<String> comparedWith) {
    peer = comparedWith;
    nRanks = devices.size();
  }

  @Override
  public void measured(PerfRow row) {
    if (row.bytes() > 0) {
      rows.add(row);
      write();
    }
  }

  private void write() {
    try {
      Files.writeString(next, svg());
      Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw new InvalidUsage("plot=" + file + " can't be written: " + e, e);
    }
  }

  private String svg() {
    Map<String, List<SvgChart.Point>> times = new LinkedHashMap<>();
    Map<String, List<SvgChart.Point>> bandwidths = new LinkedHashMap<>();
    for (PerfRow row : rows) {
      String what = seriesOf(row.measured());
      add(times, "FluxCCL" + what, row.bytes(), row.micros());
      add(bandwidths, "FluxCCL" + what, row.bytes(), row.busBandwidth(row.micros()));
      if (row.peerMicros().isPresent()) {
        double micros = row.peerMicros().getAsDouble();
        add(times, peer.orElse("peer") + what, row.bytes(), micros);
        add(bandwidths, peer.orElse("peer") + what, row.bytes(), row.busBandwidth(micros));
      }
    }
    int height = TITLE_HEIGHT + 2 * CHART_HEIGHT + LEGEND_LINE * (times.size() + 1);
    StringBuilder svg = new StringBuilder();
    svg.append(
        String.format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\""
                + " height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">%n",
            WIDTH, height, WIDTH, height));
    svg.append(SvgChart.STYLE);
    svg.append(
        String.format(
            "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>%n"
                + "<text class=\"title\" x=\"20\" y=\"26\">%s</text>%n",
            WIDTH, height, SvgChart.escape(title())));
    new SvgChart("time", "us", WIDTH, CHART_HEIGHT).draw(svg, TITLE_HEIGHT, times);
    new SvgChart("bus bandwidth", "GB/s", WIDTH, CHART_HEIGHT)
        .draw(svg, TITLE_HEIGHT + CHART_HEIGHT, bandwidths);
    SvgChart.legend(svg, TITLE_HEIGHT + 2 * CHART_HEIGHT, LEGEND_LINE, times.keySet());
    return svg.append("</svg>\n").toString();
  }

  private String title() {
    return rows.isEmpty()
        ? "nothing measured yet"
        : rows.get(0).measured().collective().label() + ", " + nRanks + " ranks";
  }

  private static String seriesOf(PerfCase shape) {
    return " " + shape.type().label() + (shape.op() == null ? "" : " " + shape.op().label());
  }

  private static void add(
      Map<String, List<SvgChart.Point>> series, String name, long bytes, double value) {
    series.computeIfAbsent(name, absent -> new ArrayList<>()).add(new SvgChart.Point(bytes, value));
  }
}
