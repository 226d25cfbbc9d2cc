// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import java.io.File;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * The ranks of a job as child processes. No rank outlives this object, nor does a process that a
 * rank has started: not when a rank ends, nor when this process is asked to end. If this process is
 * killed, ranks that are {@code fluxccl} themselves end by {@link RootCommand}, and a guard kills
 * what is left.
 *
 * <p>On Linux the processes of the job are known by the job's secret in their environment, which
 * they keep when their parent has ended. Elsewhere only descendants of ranks are known.
 */
final class RankLauncher implements AutoCloseable {
  /**
   * The time that the other ranks have to end by themselves after a rank has failed. Also the time
   * for processes that ranks have left running, after all ranks have ended.
   */
  static final Duration GRACE = Duration.ofSeconds(5);

  /** The time that a process has to end after it was asked to, before it is killed. */
  static final Duration TERMINATION_GRACE = Duration.ofSeconds(2);

  /** No limit of restarts. */
  static final int UNLIMITED = Integer.MAX_VALUE;

  /** Exit code of a process that a signal ended, less the signal. */
  private static final int SIGNALLED = 128;

  private static final int MAX_SIGNAL = 64;

  /** The time for which a pipe may stay open without new bytes after its rank has ended. */
  private static final Duration QUIET_GRACE = Duration.ofSeconds(2);

  private static final Duration CHECK_PERIOD = Duration.ofMillis(20);

  /**
   * A shell whose input ends when this process has ended. It waits 2 s for ranks to end by
   * themselves, and then kills every process of the job.
   */
  private static final String GUARD =
      "while read -r line; do :; done; sleep 2; for each in /proc/[0-9]*; do"
          + " if grep -qzxF \"$JOB\" $each/environ; then kill -9 ${each#/proc/}; fi; done";

  // By rank. Guarded by this.
  private final Map<Integer, Process> processes = new TreeMap<>();

  // Of all that were started. Guarded by this.
  private final Set<Long> pids = new HashSet<>();
  private final List<String> command;
  private final RankVariables variables;
  private final LineForwarder.Sink sink;
  private final List<LineForwarder> forwarders = new ArrayList<>();
  private final BlockingQueue<Integer> ended = new LinkedBlockingQueue<>();
  private final Thread onShutdown;

  /** Its output stream holds the only writing end of its input; null if it can't be started. */
  private Process guard;

  /** The number of failing ranks that may still be started again. */
  private int restarts;

  /** Whether ranks are being ended, so that no more are started. Written under the lock. */
  private volatile boolean ending;

  private RankLauncher(
      List<String> command,
      RankVariables variables,
      int restarts,
      Duration endGrace,
      LineForwarder.Sink sink) {
    this.command = command;
    this.variables = variables;
    this.restarts = restarts;
    this.sink = sink;
    this.onShutdown = new Thread(() -> terminate(endGrace), "fluxccl-launch-shutdown");
  }

  /**
   * Starts the ranks and waits for them.
   *
   * @param command the same for each
   * @param nRanks how many
   * @param restarts how many ranks that fail are started again; then a failing rank ends the job
   * @param endGrace how long ranks have to end after this process was asked to
   * @param sink takes what they print
   * @return 0, or the exit code of the rank that failed first
   */
  static int runAndAwait(
      List<String> command, int nRanks, int restarts, Duration endGrace, LineForwarder.Sink sink)
      throws InterruptedException {
    try (RankLauncher ranks = start(command, nRanks, restarts, endGrace, sink)) {
      return ranks.await(GRACE);
    }
  }

  /**
   * Starts the ranks.
   *
   * @param command the same for each
   * @param nRanks how many
   * @param restarts as in {@link #runAndAwait}
   * @param endGrace as in {@link #runAndAwait}
   * @param sink takes what they print
   * @return the running ranks
   * @throws Aborted if the command can't be started; then none runs
   */
  static RankLauncher start(
      List<String> command, int nRanks, int restarts, Duration endGrace, LineForwarder.Sink sink) {
    try {
      RankLauncher ranks =
          new RankLauncher(command, RankVariables.forThisHost(nRanks), restarts, endGrace, sink);
      ranks.startAll();
      return ranks;
    } catch (IOException e) {
      throw new Aborted(
          FluxCclException.NO_RANK, "can't start '" + command.get(0) + "': " + e.getMessage(), e);
    }
  }

  private void startAll() throws IOException {
    Runtime.getRuntime().addShutdownHook(onShutdown);
    guard = startGuard();
    try {
      for (int rank = 0; rank < variables.nRanks(); rank++) {
        startRank(rank);
      }
    } catch (IOException e) {
      close();
      throw e;
    }
  }

  private Process startGuard() {
    ProcessBuilder builder =
        new ProcessBuilder("/bin/sh", "-c", GUARD)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.DISCARD);
    // As another variable, so that it is no process of the job itself.
    builder.environment().keySet().removeIf(name -> !name.equals("PATH"));
    builder.environment().put("JOB", RankVariables.SECRET + "=" + variables.secret());
    try {
      return builder.start();
    } catch (IOException e) {
      return null; // an image without a shell
    }
  }

  /**
   * Waits until no rank runs any more, nor any process that a rank has started. Once a rank has
   * failed, the others have a while to end by themselves and are then killed. Once all ranks have
   * ended, the processes that they left running are ended in the same way.
   *
   * @param grace how long they have
   * @return 0, or the exit code of the rank that failed first
   */
  int await(Duration grace) throws InterruptedException {
    int code = ExitCode.OK;
    Deadline end = null;
    int left = variables.nRanks();
    while (left > 0) {
      Integer rank =
          end == null ? ended.take() : ended.poll(end.remainingNanos(), TimeUnit.NANOSECONDS);
      if (rank == null) {
        break;
      }
      int its = process(rank).exitValue();
      if (its != ExitCode.OK
          && end == null
          && left == variables.nRanks()
          && isRestarted(rank, its)) {
        continue;
      }
      left--;
      if (its != ExitCode.OK && end == null) {
        code = its;
        end = Deadline.after(grace);
        notice(rank, code, left, grace);
      }
    }
    // Processes that are left may be about to end, like one that writes output to a file.
    awaitEnd(ofJob(), end == null ? Deadline.after(grace) : end);
    terminate(TERMINATION_GRACE);
    long since = System.nanoTime();
    for (LineForwarder forwarder : List.copyOf(forwarders)) {
      forwarder.await(since, QUIET_GRACE);
    }
    return code;
  }

  /** Returns the ids of the processes that were ranks, those that have ended included. */
  synchronized Set<Long> pids() {
    return Set.copyOf(pids);
  }

  private synchronized Process process(int rank) {
    return processes.get(rank);
  }

  /** Starts a rank that has failed again, unless too many were. Once a rank is done, none is. */
  private boolean isRestarted(int rank, int code) {
    if (restarts == 0 || ending) {
      return false;
    }
    boolean limited = restarts < UNLIMITED;
    restarts -= limited ? 1 : 0;
    sink.restarted(rank);
    sink.notice(
        Text.of(
            "rank %d ended with code %d and is started again%s",
            rank, code, limited ? "; " + restarts + " restarts are left" : ""));
    try {
      startRank(rank);
      return true;
    } catch (IOException e) {
      sink.notice(Text.of("rank %d can't be started again: %s", rank, e.getMessage()));
      return false;
    }
  }

  /**
   * Kills a rank as {@code kill -9} does.
   *
   * @return whether it was running
   */
  boolean kill(int rank) {
    Process process = process(rank);
    boolean running = process.isAlive();
    process.destroyForcibly();
    return running;
  }

  /**
   * Prints which rank has failed first, because a killed rank can't print it. A lone rank that ends
   * with an exit code has printed the reason; a rank that ends with the launcher needs no message.
   */
  private void notice(int rank, int code, int others, Duration grace) {
    int signal = code - SIGNALLED;
    boolean killed = signal > 0 && signal <= MAX_SIGNAL;
    if (ending || variables.nRanks() == 1 && !killed) {
      return;
    }
    String seconds = BigDecimal.valueOf(grace.toMillis(), 3).stripTrailingZeros().toPlainString();
    sink.notice(
        Text.of(
            "rank %d ended with code %d%s%s",
            rank,
            code,
            killed ? " (killed by signal " + signal + ")" : "",
            others > 0 ? "; the others have " + seconds + " s" : ""));
  }

  /** Ends all processes of the job that still run. */
  @Override
  public void close() {
    terminate(TERMINATION_GRACE);
    try {
      Runtime.getRuntime().removeShutdownHook(onShutdown);
    } catch (IllegalStateException e) {
      // The JVM is ending already, and the hook does the same.
      return;
    }
  }

  /** Starts a rank, unless ranks are being ended: a new one would outlive them. */
  private synchronized void startRank(int rank) throws IOException {
    if (ending) {
      return;
    }
    ProcessBuilder builder = new ProcessBuilder(command);
    variables.addTo(builder.environment(), rank);
    builder.redirectInput(new File("/dev/null"));
    Process process = builder.start();
    pids.add(process.pid());
    processes.put(rank, process);
    forwarders.add(LineForwarder.start(rank, false, process.getInputStream(), sink));
    forwarders.add(LineForwarder.start(rank, true, process.getErrorStream(), sink));
    process.onExit().thenRun(() -> ended.add(rank));
  }

  /** Asks all processes of the job to end, and kills those that have not after a while. */
  synchronized void terminate(Duration grace) {
    ending = true;
    Set<ProcessHandle> left = new LinkedHashSet<>();
    for (Process process : processes.values()) {
      // Descendants with another environment are known only as descendants.
      process.descendants().forEach(left::add);
      left.add(process.toHandle());
    }
    left.addAll(ofJob());
    left.forEach(ProcessHandle::destroy);
    awaitEnd(left, Deadline.after(grace));
    Deadline end = Deadline.after(TERMINATION_GRACE);
    do { // until there is none: a process may have started another one before it ended
      left.addAll(ofJob());
      left.forEach(ProcessHandle::destroyForcibly);
      awaitEnd(left, end);
    } while (!ofJob().isEmpty() && !end.expired() && !Thread.currentThread().isInterrupted());
    if (guard != null) {
      guard.destroyForcibly();
    }
  }

  /** Returns the processes that have the job's secret, as far as this one may read it. */
  private List<ProcessHandle> ofJob() {
    // In /proc each variable ends with a zero byte.
    String variable = "\0" + RankVariables.SECRET + "=" + variables.secret() + "\0";
    return ProcessHandle.allProcesses()
        .filter(process -> ("\0" + read(process, "environ")).contains(variable))
        .toList();
  }

  /** Waits until processes have ended, or until the thread is interrupted. */
  private static void awaitEnd(Collection<ProcessHandle> processes, Deadline end) {
    while (processes.stream().anyMatch(RankLauncher::runs)
        && end.remainingNanos() > 0
        && !Thread.currentThread().isInterrupted()) {
      LockSupport.parkNanos(Math.min(CHECK_PERIOD.toNanos(), end.remainingNanos()));
    }
  }

  /** Returns whether a process runs; a zombie, which its parent may never reap, does not. */
  private static boolean runs(ProcessHandle process) {
    String stat = read(process, "stat");
    boolean zombie = !stat.isEmpty() && stat.charAt(stat.lastIndexOf(')') + 2) == 'Z';
    return process.isAlive() && !zombie;
  }

  /** Returns a file of a process in /proc; empty if there is none, or it can't be read. */
  private static String read(ProcessHandle process, String name) {
    try {
      Path file = Path.of("/proc", Long.toString(process.pid()), name);
      return new String(Files.readAllBytes(file), StandardCharsets.ISO_8859_1);
    } catch (IOException e) {
      return "";
    }
  }
}
