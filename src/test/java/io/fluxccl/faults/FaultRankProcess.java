// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;

/** A rank's process that prints its steps. Its failure ends waits for other lines. */
final class FaultRankProcess implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(120);

  private final ProcessRank process;

  /**
   * Starts a rank.
   *
   * @param prefix what the command starts with; may be empty
   * @param variables which rank it is, and where the others are
   */
  FaultRankProcess(
      Class<?> main, List<String> prefix, Map<String, String> variables, String... arguments) {
    int rank = Integer.parseInt(variables.getOrDefault("FLUXCCL_RANK", "0"));
    process =
        ProcessRanks.builder(rank + 1, main)
            .prefix(prefix)
            .jvmOptions(TestJvms.ofBuild().toArray(String[]::new))
            .jvmOptions("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
            // A fifth of the time that a start takes.
            .jvmOptions("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
            .variables(variables)
            .arguments(arguments)
            .limit(PATIENCE)
            .startRank(rank);
  }

  ProcessRank process() {
    return process;
  }

  /** Returns what it has printed. */
  String output() {
    return process.output();
  }

  /** Returns the last line that begins so, or null. */
  String last(String beginning) {
    return process.last(beginning);
  }

  /** Returns how many lines contain that. */
  long count(String part) {
    return process.lines().stream().filter(line -> line.contains(part)).count();
  }

  /** Returns the number of the last step that it has printed, -1 before the first. */
  long steps() {
    String line = last("steps ");
    return line == null ? -1 : Long.parseLong(line.substring("steps ".length()));
  }

  /** Waits for a line with this beginning. */
  void awaitLine(String beginning) {
    await(() -> last(beginning) != null, "a line of " + beginning, false);
  }

  /** Waits for a line with this beginning, also after a line that reports a failure. */
  void awaitLineAfterFailure(String beginning) {
    await(() -> last(beginning) != null, "a line of " + beginning, true);
  }

  /** Waits for a line that contains the text. */
  void awaitLineWith(String part) {
    await(() -> count(part) > 0, "a line with " + part, false);
  }

  /** Waits until it has made that step. */
  void awaitStep(long step) {
    await(() -> steps() >= step, "step " + step, false);
  }

  /** Waits for what it or another rank brings about. */
  void awaitUntil(Callable<Boolean> reached, String what) {
    await(reached, what, true);
  }

  private void await(Callable<Boolean> reached, String what, boolean afterFailure) {
    process.await(rank -> isTrue(reached) || (!afterFailure && last("failed") != null), what);
    if (!isTrue(reached)) {
      throw new AssertionError("no " + what + ":\n" + output());
    }
  }

  private static boolean isTrue(Callable<Boolean> reached) {
    try {
      return reached.call();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    process.close();
  }
}
