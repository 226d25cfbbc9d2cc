// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** Runs a command within the test and keeps what it says. */
public record Cli(int code, String out, String err) {
  /** Runs a command that makes no ranks. */
  public static Cli run(Map<String, String> environment, String... args) {
    return run(null, environment, args);
  }

  static Cli run(PerfBackend backend, String... args) {
    return run(backend, Map.of(), args);
  }

  static Cli run(PerfBackend backend, Map<String, String> environment, String... args) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    int code =
        RootCommand.run(
            new CliContext(
                backend,
                FakePerfMain.class.getName(),
                environment,
                new PrintStream(out, true, StandardCharsets.UTF_8),
                new PrintStream(err, true, StandardCharsets.UTF_8)),
            args);
    return new Cli(
        code, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
  }

  /** The rows of a table, each as its columns. */
  List<List<String>> rows() {
    return out.lines()
        .filter(line -> !line.startsWith("#") && !line.isBlank())
        .map(line -> List.of(line.trim().split("\\s+")))
        .toList();
  }
}
