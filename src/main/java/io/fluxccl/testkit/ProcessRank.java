// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** The process of one rank, and the lines that it has printed. Thread-safe. */
@Experimental
public final class ProcessRank implements AutoCloseable {
  private static final long LOOK_MILLIS = 20;

  /** Bounds the time to read the last lines: a process that it started may hold its output. */
  private static final long READ_MILLIS = 2_000;

  /** The system ends a killed process, however little time the rank has for its own work. */
  private static final Duration AFTER_KILL = Duration.ofSeconds(60);

  private final int rank;
  private final Process process;
  private final Duration limit;

  /** The beginning of a line by which it reports its failure, or null. */
  private final String failure;

  /** Guards itself and the errors, and is notified of each line and of the end. */
  private final List<String> lines = new ArrayList<>();

  private final List<String> errors = new ArrayList<>();
  private final Thread reader;
  private final Thread errorReader;

  /** The number of lines that {@link #readLine} has returned; guarded by {@code lines}. */
  private int read;

  ProcessRank(int rank, Process process, Duration limit, String failure) {
    this.rank = rank;
    this.process = process;
    this.limit = limit;
    this.failure = failure;
    reader = read(process.inputReader(StandardCharsets.UTF_8), lines);
    errorReader = read(process.errorReader(StandardCharsets.UTF_8), errors);
  }

  private Thread read(BufferedReader in, List<String> target) {
    Thread thread = new Thread(() -> readAll(in, target), "output-of-rank-" + rank);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  private void readAll(BufferedReader in, List<String> target) {
    try (in) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        synchronized (lines) {
          target.add(line);
          lines.notifyAll();
        }
      }
    } catch (IOException e) {
      return; // it was killed
    } finally {
      synchronized (lines) {
        lines.notifyAll();
      }
    }
  }

  /** Returns the number of the rank. */
  public int rank() {
    return rank;
  }

  /** Returns the number of the process. */
  public long pid() {
    return process.pid();
  }

  /** Returns whether the process runs, or is stopped. */
  public boolean isAlive() {
    return process.isAlive();
  }

  /** Returns what it has printed, by line. */
  public List<String> lines() {
    synchronized (lines) {
      return List.copyOf(lines);
    }
  }

  /** Returns what it has printed, as one text. */
  public String output() {
    return String.join("\n", lines());
  }

  /** Returns its lines of standard error, if the builder keeps them apart; empty otherwise. */
  public List<String> errors() {
    synchronized (lines) {
      return List.copyOf(errors);
    }
  }

  /** Returns the number of its lines that contain a text. */
  public long count(String part) {
    return lines().stream().filter(line -> line.contains(part)).count();
  }

  /** Forgets what it has printed. */
  public void forget() {
    synchronized (lines) {
      lines.clear();
      errors.clear();
      read = 0;
    }
  }

  /**
   * Waits for the next line that it prints.
   *
   * @return the first line that this method has not returned yet; null after the last one of a
   *     process that has ended
   * @throws Timeout with all it has printed, if it prints none in time
   */
  public String readLine() {
    Deadline deadline = Deadline.after(limit);
    synchronized (lines) {
      while (read == lines.size()) {
        if (!reader.isAlive()) {
          return null;
        }
        throwIfExpired(deadline, "another line");
        pause();
      }
      return lines.get(read++);
    }
  }

  /**
   * Waits until it has printed a line that begins so.
   *
   * @return the last such line
   * @throws Timeout with all it has printed, if it prints none in time
   * @throws RemoteFailure with all it has printed, if it ends without such a line, or reports a
   *     failure before ({@link ProcessRanks.Builder#failure})
   */
  public String awaitLine(String beginning) {
    return awaitLine(() -> last(beginning), "a line that begins with '" + beginning + "'");
  }

  /**
   * Waits until it has printed a line that contains a text; otherwise as {@link #awaitLine}.
   *
   * @return the first such line
   */
  public String awaitLineWith(String part) {
    Supplier<String> line =
        () -> lines().stream().filter(each -> each.contains(part)).findFirst().orElse(null);
    return awaitLine(line, "a line with '" + part + "'");
  }

  private String awaitLine(Supplier<String> line, String what) {
    await(ignored -> line.get() != null || failure != null && last(failure) != null, what);
    String found = line.get();
    if (found == null) {
      throw RemoteFailure.of(rank, "rank %d reported a failure before %s%s", rank, what, printed());
    }
    return found;
  }

  /** Returns the last line that begins so, or null. */
  public String last(String beginning) {
    synchronized (lines) {
      for (int i = lines.size() - 1; i >= 0; i--) {
        if (lines.get(i).startsWith(beginning)) {
          return lines.get(i);
        }
      }
      return null;
    }
  }

  /**
   * Waits for any condition that this rank, or another one, makes true.
   *
   * @param reached evaluated after each line of this rank, and several times a second
   * @param what is waited for, for the error
   * @throws Timeout as {@link #awaitLine}
   * @throws RemoteFailure with all it has printed, if it ends before
   */
  public void await(Predicate<ProcessRank> reached, String what) {
    Deadline deadline = Deadline.after(limit);
    while (!reached.test(this)) {
      // Its last lines may still have to be read.
      boolean ended = !process.isAlive() && !reader.isAlive() && joined(errorReader);
      if (ended && !reached.test(this)) {
        throw RemoteFailure.of(
            rank,
            "rank %d ended with code %d before %s%s",
            rank,
            process.exitValue(),
            what,
            printed());
      }
      throwIfExpired(deadline, what);
      synchronized (lines) {
        pause();
      }
    }
  }

  /** Waits for the thread that reads the last errors, which another process may hold open. */
  private boolean joined(Thread thread) {
    try {
      thread.join(READ_MILLIS);
      return true;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw FluxCclException.from(e);
    }
  }

  private void throwIfExpired(Deadline deadline, String what) {
    if (deadline.expired()) {
      throw Timeout.of(
          rank, "rank %d: %s was not seen within %d ms%s", rank, what, limit.toMillis(), printed());
    }
  }

  private void pause() {
    try {
      lines.wait(LOOK_MILLIS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw FluxCclException.from(e);
    }
  }

  private String printed() {
    List<String> kept = errors();
    return "; it printed:\n"
        + output()
        + (kept.isEmpty() ? "" : "\nstandard error:\n" + String.join("\n", kept));
  }

  /** Writes a line to its input. */
  public void sendLine(String line) {
    try {
      OutputStream in = process.getOutputStream();
      in.write((line + "\n").getBytes(StandardCharsets.UTF_8));
      in.flush();
    } catch (IOException e) {
      throw FluxCclException.from(e);
    }
  }

  /**
   * Ends its input, and waits until it has ended by itself and its lines are read.
   *
   * @return the exit code; 128 and the number of the signal where one ended it
   * @throws Timeout if it does not end in time
   */
  public int end() {
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      return awaitEnd(limit); // it has ended
    }
    return awaitEnd(limit);
  }

  private int awaitEnd(Duration limit) {
    try {
      if (!process.waitFor(limit.toNanos(), TimeUnit.NANOSECONDS)) {
        throw Timeout.of(
            rank, "rank %d has not ended within %d ms%s", rank, limit.toMillis(), printed());
      }
      reader.join(READ_MILLIS);
      errorReader.join(READ_MILLIS);
      return process.exitValue();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw FluxCclException.from(e);
    }
  }

  /**
   * Stops it, as SIGSTOP does: it keeps its sockets and answers nothing. Returns when all of its
   * threads have stopped.
   *
   * @throws Timeout if they do not stop in time
   * @throws RemoteFailure if it has ended
   */
  public void stop() {
    signal("STOP");
    long begin = System.nanoTime();
    while (runs()) {
      if (System.nanoTime() - begin > limit.toNanos()) {
        throw Timeout.of(rank, "rank %d has not stopped within %d ms", rank, limit.toMillis());
      }
      synchronized (lines) {
        pause();
      }
    }
  }

  /** Returns whether any of its threads still runs. A SIGSTOP reaches them one after the other. */
  private boolean runs() {
    try (Stream<Path> threads = Files.list(Path.of("/proc", Long.toString(pid()), "task"))) {
      return threads.anyMatch(ProcessRank::runs);
    } catch (NoSuchFileException e) {
      return false; // it has ended
    } catch (IOException | UncheckedIOException e) {
      throw FluxCclException.from(e);
    }
  }

  private static boolean runs(Path thread) {
    try {
      String status = Files.readString(thread.resolve("stat"));
      return "TZX".indexOf(status.charAt(status.lastIndexOf(')') + 2)) < 0;
    } catch (IOException e) {
      return Files.exists(thread); // otherwise it has ended meanwhile
    }
  }

  /** Continues it after {@link #stop}. */
  public void resume() {
    signal("CONT");
  }

  /**
   * Calls {@link #sendLine}.
   *
   * @deprecated Use {@link #sendLine}.
   */
  @Deprecated
  public void tell(String line) {
    sendLine(line);
  }

  /**
   * Calls {@link #resume}.
   *
   * @deprecated Use {@link #resume}.
   */
  @Deprecated
  public void goOn() {
    resume();
  }

  /**
   * Sends a signal to its process only.
   *
   * @param name without SIG; {@code QUIT} has a JVM print its threads
   * @throws RemoteFailure if it has ended
   * @throws InvalidUsage if the system has no such signal
   */
  public void signal(String name) {
    try {
      Process kill = new ProcessBuilder("kill", "-" + name, Long.toString(pid())).start();
      if (!kill.waitFor(limit.toNanos(), TimeUnit.NANOSECONDS)) {
        kill.destroyForcibly();
        throw Timeout.of(rank, "rank %d: kill -%s does not end", rank, name);
      }
      if (kill.exitValue() != 0) {
        throw process.isAlive()
            ? InvalidUsage.of("rank %d can't be sent SIG%s: there is no such signal", rank, name)
            : RemoteFailure.of(rank, "rank %d can't be sent SIG%s: it has ended", rank, name);
      }
    } catch (IOException e) {
      throw FluxCclException.from(e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw FluxCclException.from(e);
    }
  }

  void destroy() {
    process.descendants().forEach(ProcessHandle::destroyForcibly);
    process.destroyForcibly();
  }

  /**
   * Kills it and the processes that it has started, as SIGKILL does, and waits until it has ended.
   */
  public void kill() {
    destroy();
    awaitEnd(AFTER_KILL);
  }

  @Override
  public void close() {
    kill();
  }
}
