// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.Timeout;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.testing.TestOutcome.Kind;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * Runs the tests that need GPUs without Maven, as {@code bin/gpu-tests} of the bundle does. Each
 * class runs in its own process with a time limit. Prints passed, failed and skipped tests.
 */
@Command(
    name = "gpu-tests",
    sortOptions = false,
    mixinStandardHelpOptions = true,
    description = "Run the tests that need GPUs.")
public final class GpuTests implements Callable<Integer> {
  private static final Duration DUMP = Duration.ofSeconds(2);

  @Parameters(
      paramLabel = "CLASS",
      description = "Only these: part of a class's name, * for anything. All when none is given.")
  private List<String> chosen = List.of();

  @Option(names = "--list", description = "Print the classes and end.")
  private boolean list;

  @Option(names = "--limit", description = "Seconds for each class (default: ${DEFAULT-VALUE}).")
  private int limit = 150;

  @Option(names = "--test-limit", description = "For each test (default: ${DEFAULT-VALUE}).")
  private int testLimit = 60;

  @Option(names = "--budget", description = "Seconds for all; what is not run by then has failed.")
  private int budget = Integer.MAX_VALUE;

  @Option(names = "--reports", description = "Folder for logs and JUnit XML (default: a new one).")
  private Path reports;

  @Option(names = "--sanitizer", description = "Run under compute-sanitizer: memcheck, racecheck…")
  private String sanitizer;

  @Option(names = "-D", paramLabel = "NAME=VALUE", description = "System property of the tests.")
  private List<String> properties = List.of();

  @Option(names = "--tag", hidden = true)
  private String tag = "gpu";

  @Spec private CommandSpec spec;

  /** Ends with 0 when nothing failed, 1 otherwise, 2 for wrong arguments. */
  public static void main(String[] args) {
    System.exit(new CommandLine(new GpuTests()).execute(args));
  }

  @Override
  public Integer call() throws IOException {
    PrintWriter out = spec.commandLine().getOut();
    List<String> classes = TaggedClasses.chosen(tag, chosen);
    if (list) {
      classes.forEach(out::println);
      out.flush();
      return 0;
    }
    if (classes.isEmpty() && !chosen.isEmpty()) {
      throw new CommandLine.ParameterException(
          spec.commandLine(), "no class matches " + String.join(" ", chosen) + "; see --list");
    }
    Path folder =
        reports != null
            ? Files.createDirectories(reports.toAbsolutePath())
            : Files.createTempDirectory("fluxccl-gpu-tests-");
    // The driver here only counts: a context would cost memory beside the tests'.
    out.printf(
        "%d test classes, %s; logs and reports in %s%n",
        classes.size(),
        CudaDriver.unavailableBecause().orElse(CudaDriver.count() + " GPUs"),
        folder);
    out.flush();
    List<TestClassResult> results = run(classes, folder, out);
    String summary =
        String.format(
            Locale.ROOT,
            "%d passed, %d failed, %d skipped",
            count(results, Kind.PASSED),
            count(results, Kind.FAILED),
            count(results, Kind.SKIPPED));
    StringBuilder text = new StringBuilder();
    results.forEach(result -> text.append(result.text()));
    Files.writeString(folder.resolve("summary.txt"), text + summary + "\n");
    out.println(summary);
    out.flush();
    return count(results, Kind.FAILED) == 0 ? 0 : 1;
  }

  private List<TestClassResult> run(List<String> classes, Path folder, PrintWriter out)
      throws IOException {
    long end = System.nanoTime() + Duration.ofSeconds(budget).toNanos();
    Duration limitOfAny = Duration.ofSeconds((long) limit * slower());
    List<TestClassResult> results = new ArrayList<>();
    for (String name : classes) {
      Duration left = Duration.ofNanos(end - System.nanoTime());
      TestClassResult result =
          left.isNegative() || left.isZero()
              ? TestClassResult.of(name, List.of(), "not started: the budget is spent", 0)
              : run(name, folder, limitOfAny.compareTo(left) < 0 ? limitOfAny : left);
      results.add(result);
      out.print(result.text());
      out.flush();
    }
    return results;
  }

  private int slower() {
    return sanitizer == null ? 1 : Sanitizer.SLOWER;
  }

  /**
   * Runs one class in a process of its own, to its end or its limit: a hang costs no more, and a
   * GPU context that a failed kernel broke ends with the process.
   */
  private TestClassResult run(String className, Path folder, Duration atMost) throws IOException {
    long start = System.nanoTime();
    Path noted = folder.resolve(className + ".outcomes");
    Path xml = Files.createDirectories(folder.resolve("xml").resolve(className));
    Path log = folder.resolve(className + ".log");
    String death = null;
    try (ProcessRank process =
        ProcessRanks.builder(1, TestClassMain.class)
            .removeVariables(TestJvms::isOfJob)
            .prefix(List.of("sh", "-c", "exec \"$@\" > '" + log + "' 2>&1", "sh"))
            .prefix(sanitizer == null ? List.of() : Sanitizer.command(sanitizer, folder, className))
            .jvmOptions(jvmOptions())
            .arguments(className, tag, noted.toString(), xml.toString())
            .arguments(Long.toString((long) testLimit * slower()))
            .limit(atMost)
            .startRank(0)) {
      try {
        int code = process.end();
        if (code != 0) {
          death = "the process ended with exit code " + code + "; see " + log;
        }
      } catch (Timeout e) {
        death = "stopped after " + atMost.toSeconds() + " s; its threads are at the end of " + log;
        printThreads(process);
      }
    }
    List<TestOutcome> outcomes =
        Files.exists(noted)
            ? Files.readAllLines(noted).stream().map(TestOutcome::parse).toList()
            : List.of();
    return TestClassResult.of(className, outcomes, death, (System.nanoTime() - start) / 1e9);
  }

  private String[] jvmOptions() {
    List<String> options = new ArrayList<>();
    // JVM options for ranks that tests start, in the property that Maven also sets.
    List<String> forRanks = new ArrayList<>();
    for (String option : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      if (!option.startsWith("-agentlib")) {
        options.add(option);
      }
      if (option.startsWith("--") || option.startsWith("-Xshare")) {
        forRanks.add(option);
      }
    }
    options.add("-Dfluxccl.jvm.args=" + String.join(" ", forRanks));
    properties.forEach(property -> options.add("-D" + property));
    if (sanitizer != null) {
      options.add("-D" + Sanitizer.PROPERTY + "=" + sanitizer);
    }
    return options.toArray(String[]::new);
  }

  /** Has the JVM of a class, and those of ranks that its tests started, print their threads. */
  private static void printThreads(ProcessRank process) {
    StringBuilder kill = new StringBuilder("kill -QUIT " + process.pid());
    ProcessHandle.of(process.pid()).stream()
        .flatMap(ProcessHandle::descendants)
        .forEach(child -> kill.append(" ").append(child.pid()));
    TestJvms.run("sh", "-c", kill + " || true"); // some may have ended
    LockSupport.parkNanos(DUMP.toNanos());
  }

  private static long count(List<TestClassResult> results, Kind kind) {
    return results.stream().mapToLong(result -> result.count(kind)).sum();
  }
}
