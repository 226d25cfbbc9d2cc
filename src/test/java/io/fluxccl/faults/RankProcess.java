package io.fluxccl.faults;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;

/** A rank's process, and the lines that it has printed. */
final class RankProcess implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(120);

  private final Process process;
  private final List<String> lines = new ArrayList<>();

  /**
   * Starts a rank.
   *
   * @param prefix what the command starts with; may be empty
   */
  RankProcess(Class<?> main, List<String> prefix, Map<String, String> variables)
      throws IOException {
    List<String> command = new ArrayList<>(prefix);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    Arrays.stream(System.getProperty("fluxccl.jvm.args", "").trim().split("\\s+"))
        .filter(each -> !each.isEmpty())
        .forEach(command::add);
    command.addAll(List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().putAll(variables);
    process = builder.start();
    Thread reader = new Thread(this::read, "rank-output");
    reader.setDaemon(true);
    reader.start();
  }

  private void read() {
    try (BufferedReader in = process.inputReader(StandardCharsets.UTF_8)) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        synchronized (lines) {
          lines.add(line);
        }
      }
    } catch (IOException e) {
      return; // it was killed
    }
  }

  /** Returns what it has printed. */
  String output() {
    synchronized (lines) {
      return String.join("\n", lines);
    }
  }

  /** Returns the last line that begins so, or null. */
  String last(String begin) {
    synchronized (lines) {
      return lines.stream()
          .filter(line -> line.startsWith(begin))
          .reduce((first, second) -> second)
          .orElse(null);
    }
  }

  /** Returns how many lines contain that. */
  long count(String part) {
    synchronized (lines) {
      return lines.stream().filter(line -> line.contains(part)).count();
    }
  }

  /** Returns the number of the last step that it has told of, -1 before the first. */
  long steps() {
    String line = last("steps ");
    return line == null ? -1 : Long.parseLong(line.substring("steps ".length()));
  }

  /** Waits for a line that begins so. */
  void awaitLine(String begin) {
    await(() -> last(begin) != null, "a line of " + begin);
  }

  /** Waits for a line that contains that. */
  void awaitLineWith(String part) {
    await(() -> count(part) > 0, "a line with " + part);
  }

  /** Waits until it has made that step. */
  void awaitStep(long step) {
    await(() -> steps() >= step, "step " + step);
  }

  private void await(java.util.concurrent.Callable<Boolean> reached, String what) {
    Awaitility.await(what)
        .atMost(PATIENCE)
        .pollInterval(Duration.ofMillis(10))
        .until(() -> reached.call() || last("failed") != null || !process.isAlive());
    try {
      if (!reached.call()) {
        throw new AssertionError("no " + what + ":\n" + output());
      }
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  /** Stops it: it keeps its sockets, and answers nothing. */
  void stop() throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-STOP", Long.toString(process.pid())).start().waitFor();
  }

  /** Kills it with -9. */
  void kill() throws InterruptedException {
    process.descendants().forEach(ProcessHandle::destroyForcibly);
    process.destroyForcibly();
    if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
      throw new AssertionError("it survived SIGKILL");
    }
  }

  @Override
  public void close() throws InterruptedException {
    kill();
  }
}
