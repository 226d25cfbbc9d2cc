// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

/** The exit codes of the process. */
final class ExitCode {
  /** Success. */
  static final int OK = 0;

  /** Something failed, or results were wrong. */
  static final int FAILURE = 1;

  /** The command line was wrong. */
  static final int USAGE = 2;

  /** The launcher of this rank has ended; also the code of a process that SIGTERM ended. */
  static final int ORPHANED = 143;

  private ExitCode() {}
}
