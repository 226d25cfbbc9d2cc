package io.fluxccl.cli;

/** What the process's exit code says. */
final class ExitCode {
  /** All went well. */
  static final int OK = 0;

  /** Something failed, or results were wrong. */
  static final int FAILURE = 1;

  /** The command line was wrong. */
  static final int USAGE = 2;

  /** The launcher of this rank is gone; the code of a process that a SIGTERM ended. */
  static final int ORPHANED = 143;

  private ExitCode() {}
}
