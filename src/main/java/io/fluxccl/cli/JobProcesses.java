package io.fluxccl.cli;

import io.fluxccl.Deadline;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * The processes of a job on this host, known by the job's secret: a process has it in its
 * environment from whoever started it, and keeps it when that one is gone and it has another
 * parent. For Linux; elsewhere none is known so.
 */
final class JobProcesses {
  private static final Path PROC = Path.of("/proc");
  private static final Duration LOOK = Duration.ofMillis(20);

  /** As it stands among the environment, whose variables each end with a zero. */
  private final String variable;

  /**
   * Those of a job.
   *
   * @param secret the job's, which no other job has
   */
  JobProcesses(String secret) {
    this.variable = "\0" + RankVariables.SECRET + "=" + secret + "\0";
  }

  /** Those that run, as far as this process may look into them. */
  List<ProcessHandle> running() {
    return ProcessHandle.allProcesses().filter(this::isOfJob).toList();
  }

  /** A process that has ended has no environment, also while it waits for its parent to look. */
  private boolean isOfJob(ProcessHandle handle) {
    try {
      byte[] environment = Files.readAllBytes(file(handle, "environ"));
      // One byte is one character: the secret has no others.
      return ("\0" + new String(environment, StandardCharsets.ISO_8859_1)).contains(variable);
    } catch (IOException e) {
      return false;
    }
  }

  /** Waits until processes have ended, or until the thread is interrupted. */
  static void awaitEnd(Collection<ProcessHandle> handles, Deadline end) {
    while (handles.stream().anyMatch(JobProcesses::runs)
        && end.remainingNanos() > 0
        && !Thread.currentThread().isInterrupted()) {
      LockSupport.parkNanos(Math.min(LOOK.toNanos(), end.remainingNanos()));
    }
  }

  /** Whether it runs: one that only waits for its parent to look may wait for ever. */
  private static boolean runs(ProcessHandle handle) {
    if (!handle.isAlive()) {
      return false;
    }
    try {
      String stat = Files.readString(file(handle, "stat"), StandardCharsets.ISO_8859_1);
      return stat.charAt(stat.lastIndexOf(')') + 2) != 'Z';
    } catch (IOException e) {
      return handle.isAlive();
    }
  }

  private static Path file(ProcessHandle handle, String name) {
    return PROC.resolve(Long.toString(handle.pid())).resolve(name);
  }
}
