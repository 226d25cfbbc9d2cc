// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.fluxccl.cli.Main;
import io.fluxccl.device.cuda.CudaDriver;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** The command line as a process of its own, and the rows that {@code perf} writes. */
final class PerfProcess {
  /** Exit code if the options request something that the machine or build lacks. */
  static final int USAGE = 2;

  private PerfProcess() {}

  /**
   * A row's figures, of the faster placement.
   *
   * @param bytes its size
   * @param type its elements' type
   * @param micros our time
   * @param ratio our time over the peer's; NaN where there is none
   * @param wrong elements
   */
  record Row(long bytes, String type, double micros, double ratio, long wrong) {}

  /** How it ended, with the rows that it got to. */
  record Outcome(int code, List<Row> rows) {}

  /** Eight, four or two: the numbers of GPUs that there are goals for. */
  static int ranks() {
    int gpus = CudaDriver.count();
    return gpus >= 8 ? 8 : gpus >= 4 ? 4 : 2;
  }

  /** Runs {@code perf} with these arguments; its output goes where that of this process goes. */
  static Outcome perf(String... arguments) throws IOException, InterruptedException {
    Path json = Files.createTempFile("fluxccl-figures", ".json");
    try {
      List<String> command = java(Main.class.getName());
      command.add("perf");
      command.addAll(List.of(arguments));
      command.addAll(List.of("--json", json.toString(), "--no-progress"));
      // Its output has no figures; the parent of this process forwards it to stderr.
      int code = new ProcessBuilder(command).inheritIO().start().waitFor();
      return new Outcome(code, Files.size(json) == 0 ? List.of() : parse(json));
    } finally {
      Files.delete(json);
    }
  }

  /** The command that runs a class in a JVM like this one. */
  static List<String> java(String mainClass) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), mainClass));
    return command;
  }

  private static List<Row> parse(Path file) throws IOException {
    List<Row> rows = new ArrayList<>();
    try (JsonParser json = new JsonFactory().createParser(file.toFile())) {
      json.nextToken();
      while (json.nextToken() == JsonToken.START_OBJECT) {
        rows.add(parseRow(json));
      }
    }
    return rows;
  }

  private static Row parseRow(JsonParser json) throws IOException {
    long bytes = 0;
    String type = "";
    double micros = Double.NaN;
    double ratio = Double.NaN;
    long wrong = 0;
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String name = json.currentName();
      json.nextToken();
      switch (name) {
        case "bytes" -> bytes = json.getLongValue();
        case "dtype" -> type = json.getText();
        case "time_us" -> micros = json.getDoubleValue();
        case "ratio" -> ratio = json.getDoubleValue();
        case "wrong" ->
            wrong = json.currentToken() == JsonToken.VALUE_NULL ? 0 : json.getLongValue();
        default -> json.skipChildren();
      }
    }
    return new Row(bytes, type, micros, ratio, wrong);
  }

  /** As in 64K. */
  static String size(long bytes) {
    int unit = 0;
    long number = bytes;
    while (number >= 1024 && number % 1024 == 0 && unit < 3) {
      number /= 1024;
      unit++;
    }
    return String.format(Locale.ROOT, "%d%s", number, new String[] {"", "K", "M", "G"}[unit]);
  }
}
