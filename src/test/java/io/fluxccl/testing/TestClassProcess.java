// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Runs test classes, each in a process of its own: a hang costs its limit, and a GPU context that a
 * failed kernel broke ends with the process.
 *
 * @param tag of the tests to run
 * @param reports the folder for logs and XML reports
 * @param limit for each class
 * @param testLimit for each test
 * @param prefix what the command starts with, such as a sanitizer; may be empty
 * @param properties as {@code -Dname=value}
 */
record TestClassProcess(
    String tag,
    Path reports,
    Duration limit,
    Duration testLimit,
    List<String> prefix,
    List<String> properties) {
  private static final Duration DUMP = Duration.ofSeconds(2);

  /** Runs one class to its end or its limit, on the caller's thread. */
  TestClassResult run(String className) throws IOException, InterruptedException {
    long start = System.nanoTime();
    Path noted = reports.resolve(className + ".outcomes");
    Path xml = reports.resolve("xml").resolve(className);
    Files.createDirectories(xml);
    File log = reports.resolve(className + ".log").toFile();
    Process process =
        new ProcessBuilder(command(className, noted, xml))
            .redirectErrorStream(true)
            .redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")))
            .redirectOutput(log)
            .start();
    String death = null;
    try {
      if (!process.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS)) {
        death = "stopped after " + limit.toSeconds() + " s; its threads are at the end of " + log;
        dumpThreads(process);
      } else if (process.exitValue() != 0) {
        death = "the process ended with exit code " + process.exitValue() + "; see " + log;
      }
    } finally {
      // Ranks that a test started too: they may be spinning on a GPU.
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    List<TestOutcome> outcomes = new ArrayList<>();
    if (Files.exists(noted)) {
      for (String line : Files.readAllLines(noted)) {
        outcomes.add(TestOutcome.parse(line));
      }
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    return TestClassResult.of(className, outcomes, death, seconds);
  }

  private List<String> command(String className, Path noted, Path xml) {
    List<String> command = new ArrayList<>();
    for (String word : prefix) {
      command.add(word.replace("CLASS", className));
    }
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    List<String> options = ManagementFactory.getRuntimeMXBean().getInputArguments();
    options.stream().filter(option -> !option.startsWith("-agentlib")).forEach(command::add);
    // JVM options for ranks that tests start, in the property that Maven also sets.
    List<String> forRanks =
        options.stream()
            .filter(option -> option.startsWith("--") || option.startsWith("-Xshare"))
            .toList();
    command.add("-Dfluxccl.jvm.args=" + String.join(" ", forRanks));
    properties.forEach(property -> command.add("-D" + property));
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(TestClassMain.class.getName());
    command.add(className);
    command.add(tag);
    command.add(noted.toString());
    command.add(xml.toString());
    command.add(Long.toString(testLimit.toSeconds()));
    return command;
  }

  private static void dumpThreads(Process process) throws IOException, InterruptedException {
    // SIGQUIT: the JVM writes its threads to standard output, here the log; ranks likewise.
    List<String> kill = new ArrayList<>(List.of("kill", "-QUIT", Long.toString(process.pid())));
    process.descendants().forEach(child -> kill.add(Long.toString(child.pid())));
    new ProcessBuilder(kill).start().waitFor(DUMP.toMillis(), TimeUnit.MILLISECONDS);
    process.waitFor(DUMP.toMillis(), TimeUnit.MILLISECONDS);
  }
}
