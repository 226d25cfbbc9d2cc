package io.fluxccl.faults;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;

/** A rank's process, and the lines that it has printed. */
final class RankProcess implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(120);

  private final Process process;
  private final List<String> lines = new ArrayList<>();

  /** The last line that begins with a word, by word. */
  private final Map<String, String> last = new ConcurrentHashMap<>();

  /**
   * Starts a rank.
   *
   * @param prefix what the command starts with; may be empty
   */
  RankProcess(
      Class<?> main, List<String> prefix, Map<String, String> variables, String... arguments)
      throws IOException {
    List<String> command = new ArrayList<>(prefix);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    Arrays.stream(System.getProperty("fluxccl.jvm.args", "").trim().split("\\s+"))
        .filter(each -> !each.isEmpty())
        .forEach(command::add);
    command.addAll(List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    // A fifth of the time that a start takes.
    command.addAll(List.of("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
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
          last.put(line.split("[ ,]", 2)[0], line);
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

  /** Returns the last line that begins with that word, or null. */
  String last(String word) {
    return last.get(word);
  }

  /** Forgets what it has printed. */
  void forget() {
    synchronized (lines) {
      lines.clear();
      last.clear();
    }
  }

  /** Gives it a line to read. */
  void tell(String line) throws IOException {
    OutputStream in = process.getOutputStream();
    in.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    in.flush();
  }

  /** Ends its input and returns its exit code. */
  int end() throws IOException, InterruptedException {
    process.getOutputStream().close();
    if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
      throw new AssertionError("it does not end:\n" + output());
    }
    return process.exitValue();
  }

  long pid() {
    return process.pid();
  }

  /** Returns how many lines contain that. */
  long count(String part) {
    synchronized (lines) {
      return lines.stream().filter(line -> line.contains(part)).count();
    }
  }

  /** Returns the number of the last step that it has told of, -1 before the first. */
  long steps() {
    String line = last("steps");
    return line == null ? -1 : Long.parseLong(line.substring("steps ".length()));
  }

  /** Waits for a line that begins with that word. */
  void awaitLine(String word) {
    await(() -> last(word) != null, "a line of " + word, false);
  }

  /** Waits for a line that begins with that word, also behind one that tells of a failure. */
  void awaitLineAfterFailure(String word) {
    await(() -> last(word) != null, "a line of " + word, true);
  }

  /** Waits for a line that contains that. */
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
    Awaitility.await(what)
        .atMost(PATIENCE)
        .pollInterval(Duration.ofMillis(10))
        .until(
            () ->
                reached.call() || (!afterFailure && last("failed") != null) || !process.isAlive());
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
    signal("-STOP");
  }

  /** Lets it go on after a stop. */
  void goOn() throws IOException, InterruptedException {
    signal("-CONT");
  }

  private void signal(String name) throws IOException, InterruptedException {
    new ProcessBuilder("kill", name, Long.toString(process.pid())).start().waitFor();
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
