package io.fluxccl.cli;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.io.File;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * The ranks of a job as child processes. Neither they nor what they start outlive this: not when a
 * rank ends, nor when this process is told to end. (When it is killed outright, ranks that are
 * {@code fluxccl} themselves notice by {@link ParentWatch}; other commands must see to it
 * themselves.)
 */
final class RankProcesses implements AutoCloseable {
  /**
   * How long the others have, once a rank has failed, to end by themselves; and what ranks have
   * left running, once all have ended.
   */
  static final Duration GRACE = Duration.ofSeconds(5);

  /** How long a process has to end after it was asked to, before it is killed. */
  static final Duration TERMINATION_GRACE = Duration.ofSeconds(2);

  /** What the code of a process that a signal ended is more than the signal. */
  private static final int SIGNALLED = 128;

  private static final int MAX_SIGNAL = 64;

  /** How long a pipe may stay open with no bytes coming, once its rank has ended. */
  private static final Duration QUIET_GRACE = Duration.ofSeconds(2);

  // Guarded by this while ranks are started; later only read.
  private final List<Process> processes = new ArrayList<>();
  private final RankVariables variables;
  private final JobProcesses job;
  private final OutputSink sink;
  private final List<LineForwarder> forwarders = new ArrayList<>();
  private final BlockingQueue<Integer> ended = new LinkedBlockingQueue<>();
  private final Thread onShutdown = new Thread(this::terminate, "fluxccl-launch-shutdown");

  /** Whether ranks are being ended, so that no more are started. Written under the lock. */
  private volatile boolean ending;

  private RankProcesses(RankVariables variables, OutputSink sink) {
    this.variables = variables;
    this.job = new JobProcesses(variables.secret());
    this.sink = sink;
  }

  /**
   * Starts the ranks and waits for them.
   *
   * @param command the same for each
   * @param nRanks how many
   * @param sink takes what they print
   * @return 0, or the exit code of the rank that failed first
   */
  static int runAndAwait(List<String> command, int nRanks, OutputSink sink)
      throws InterruptedException {
    try (RankProcesses ranks = start(command, nRanks, sink)) {
      return ranks.await(GRACE);
    }
  }

  /**
   * Starts the ranks.
   *
   * @param command the same for each
   * @param nRanks how many
   * @param sink takes what they print
   * @return the running ranks
   * @throws Aborted if the command can't be started; then none runs
   */
  static RankProcesses start(List<String> command, int nRanks, OutputSink sink) {
    try {
      RankProcesses ranks = new RankProcesses(RankVariables.forThisHost(nRanks), sink);
      ranks.startAll(command);
      return ranks;
    } catch (IOException e) {
      throw new Aborted(
          FluxCclException.NO_RANK, "can't start '" + command.get(0) + "': " + e.getMessage(), e);
    }
  }

  private void startAll(List<String> command) throws IOException {
    Runtime.getRuntime().addShutdownHook(onShutdown);
    try {
      for (int rank = 0; rank < variables.nRanks(); rank++) {
        startRank(command, rank);
      }
    } catch (IOException e) {
      close();
      throw e;
    }
  }

  /**
   * Waits until no rank runs any more, nor anything that one has started. Once one has failed the
   * others have a while to end by themselves and are then killed; what ranks that have all ended
   * have left running, likewise.
   *
   * @param grace that while
   * @return 0, or the exit code of the rank that failed first
   */
  int await(Duration grace) throws InterruptedException {
    int code = ExitCode.OK;
    Deadline end = null;
    for (int left = processes.size(); left > 0; left--) {
      Integer rank =
          end == null ? ended.take() : ended.poll(end.remainingNanos(), TimeUnit.NANOSECONDS);
      if (rank == null) {
        break;
      }
      int its = processes.get(rank).exitValue();
      if (its != ExitCode.OK && end == null) {
        code = its;
        end = Deadline.after(grace);
        tell(rank, code, left - 1, grace);
      }
    }
    // What is left may be about to end, as what writes a rank's output to a file is.
    JobProcesses.awaitEnd(job.running(), end == null ? Deadline.after(grace) : end);
    terminate();
    long since = System.nanoTime();
    for (LineForwarder forwarder : forwarders) {
      forwarder.await(since, QUIET_GRACE);
    }
    return code;
  }

  /**
   * Says which rank has failed first: it may have had no chance to. A lone one that ends with a
   * code of its own has, and one that was ended with the launcher needs no word.
   */
  private void tell(int rank, int code, int others, Duration grace) {
    int signal = code - SIGNALLED;
    boolean killed = signal > 0 && signal <= MAX_SIGNAL;
    if (ending || processes.size() == 1 && !killed) {
      return;
    }
    sink.notice(
        "rank "
            + rank
            + " ended with code "
            + code
            + (killed ? " (killed by signal " + signal + ")" : "")
            + (others > 0 ? "; the others have " + seconds(grace) + " s" : ""));
  }

  private static String seconds(Duration time) {
    return BigDecimal.valueOf(time.toMillis(), 3).stripTrailingZeros().toPlainString();
  }

  /** Ends what still runs. */
  @Override
  public void close() {
    terminate();
    try {
      Runtime.getRuntime().removeShutdownHook(onShutdown);
    } catch (IllegalStateException e) {
      // The JVM is ending already, and the hook does the same.
      return;
    }
  }

  /** Starts a rank, unless all are being ended: then one that starts now would be left over. */
  private synchronized void startRank(List<String> command, int rank) throws IOException {
    if (ending) {
      return;
    }
    ProcessBuilder builder = new ProcessBuilder(command);
    variables.addTo(builder.environment(), rank);
    builder.redirectInput(new File("/dev/null"));
    Process process = builder.start();
    processes.add(process);
    forwarders.add(LineForwarder.start(rank, false, process.getInputStream(), sink));
    forwarders.add(LineForwarder.start(rank, true, process.getErrorStream(), sink));
    process.onExit().thenRun(() -> ended.add(rank));
  }

  /** Asks all processes of the job to end, and kills those that have not after a while. */
  private synchronized void terminate() {
    ending = true;
    Set<ProcessHandle> left = new LinkedHashSet<>();
    for (Process process : processes) {
      // Those among them that have another environment are known by their parents only.
      process.descendants().forEach(left::add);
      left.add(process.toHandle());
    }
    left.addAll(job.running());
    left.forEach(ProcessHandle::destroy);
    JobProcesses.awaitEnd(left, Deadline.after(TERMINATION_GRACE));
    // Again, as what was asked may have started more.
    left.addAll(job.running());
    left.forEach(ProcessHandle::destroyForcibly);
    JobProcesses.awaitEnd(left, Deadline.after(TERMINATION_GRACE));
  }
}
