// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.ToIntFunction;

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
    return capture(
        backend, FakePerfMain.class, environment, context -> RootCommand.run(context, args));
  }

  static Cli capture(
      PerfBackend backend,
      Class<?> main,
      Map<String, String> environment,
      ToIntFunction<CliContext> command) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    PrintStream toOut = new PrintStream(out, true, StandardCharsets.UTF_8);
    PrintStream toErr = new PrintStream(err, true, StandardCharsets.UTF_8);
    int code =
        command.applyAsInt(new CliContext(backend, main.getName(), environment, toOut, toErr));
    return new Cli(
        code, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
  }

  /** Asserts that the command has succeeded, and has printed no error. */
  Cli assertOk() {
    assertThat(err).isEmpty();
    assertThat(code).isZero();
    return this;
  }

  /** Asserts that the command has ended with a code, and with a message that has all parts. */
  Cli assertFails(int expected, String... message) {
    assertThat(code).as(err).isEqualTo(expected);
    assertThat(List.of(message)).as(err).allMatch(err::contains);
    return this;
  }

  /** The rows of a table, each as its columns. */
  List<List<String>> rows() {
    return out.lines()
        .filter(line -> !line.startsWith("#") && !line.isBlank())
        .map(line -> List.of(line.trim().split("\\s+")))
        .toList();
  }

  /** Returns what starts a command in a process of its own, with the options of this JVM. */
  static ProcessRanks.Builder process(Class<?> main, String... args) {
    return process(PerfCommand.javaCommand(main.getName())).arguments(args);
  }

  static ProcessRanks.Builder process(List<String> command) {
    return TestJvms.program(command).keepErrors().limit(Duration.ofSeconds(200));
  }

  /** Waits until a command's process has ended. */
  static Cli ended(ProcessRank process) {
    int code = process.end();
    return new Cli(code, process.output(), String.join("\n", process.errors()));
  }

  /** Runs a command in a process of its own. */
  static Cli run(ProcessRanks.Builder builder) {
    try (ProcessRank process = builder.startRank(0)) {
      return ended(process);
    }
  }
}
