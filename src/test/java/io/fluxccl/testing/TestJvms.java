// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/**
 * Processes of tests. JVMs are small, and have the options that the build gives. Their errors, log
 * lines and the warnings of the JVM go to the standard error of this one. Their standard output
 * holds only the lines that the test's program prints.
 */
public final class TestJvms {
  private static final Duration PATIENCE = Duration.ofSeconds(120);

  /** The JVM prints its warnings to standard output by default, among the lines for the test. */
  private static final String[] WARNINGS_TO_ERRORS = {
    "-Xlog:disable", "-Xlog:all=warning:stderr", "-XX:+DisplayVMOutputToStderr"
  };

  private TestJvms() {}

  /** Starts one process, which the caller closes. */
  public static ProcessRank start(Class<?> main, String... arguments) {
    return of(1, main, arguments).startRank(0);
  }

  /** Returns what starts the ranks of a job, with the options of the build. */
  public static ProcessRanks.Builder of(int nRanks, Class<?> main, String... arguments) {
    return withLog(nRanks, main, arguments).errorsApart();
  }

  /** Returns what starts the ranks of a job, whose log lines are among their lines. */
  public static ProcessRanks.Builder withLog(int nRanks, Class<?> main, String... arguments) {
    return small(nRanks, main, arguments).jvmOptions(ofBuild().toArray(String[]::new));
  }

  /** Returns what starts JVMs whose command line opens none of the JDK's packages. */
  public static ProcessRanks.Builder withoutAccess(int nRanks, Class<?> main, String... arguments) {
    return small(nRanks, main, arguments).errorsApart();
  }

  private static ProcessRanks.Builder small(int nRanks, Class<?> main, String... arguments) {
    return ProcessRanks.builder(nRanks, main)
        .jvmOptions("-Dfluxccl.test.long=" + Rounds.LONG, "-Xmx128m", "-XX:+UseSerialGC")
        .jvmOptions(WARNINGS_TO_ERRORS)
        .limit(PATIENCE)
        .arguments(arguments);
  }

  /** Returns what starts a program that is no rank; it may launch ranks. */
  public static ProcessRanks.Builder program(List<String> command) {
    return ProcessRanks.builder(1, command).removeVariables(TestJvms::isOfJob).limit(PATIENCE);
  }

  /** Returns whether a variable lets ranks find each other. */
  public static boolean isOfJob(String variable) {
    return variable.matches("FLUXCCL_(RANK|NRANKS|ADDR|SECRET)");
  }

  /** Runs a program, which must succeed, and returns what it prints. */
  public static String run(String... command) {
    return run(List.of(command));
  }

  /** Runs a program, which must succeed, and returns what it prints. */
  public static String run(List<String> command) {
    try (ProcessRank process = program(command).startRank(0)) {
      if (process.end() != 0) {
        throw new AssertionError(String.join(" ", command) + ": " + process.output());
      }
      return process.output();
    }
  }

  /** Returns the options that the build gives to the JVMs that tests start. */
  public static List<String> ofBuild() {
    return Arrays.stream(System.getProperty("fluxccl.jvm.args", "").trim().split("\\s+"))
        .filter(each -> !each.isEmpty())
        .toList();
  }
}
