// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Text;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/**
 * Shows on stderr what is being measured. On a terminal the next output overwrites the line;
 * elsewhere each line stays, with a mark by which the process that started this one finds it.
 */
final class Progress {
  /** Begins a line of progress. */
  static final String MARK = "progress: ";

  /** Makes a terminal erase the line of its cursor. */
  static final String ERASE = "\u001b[2K";

  private static final Path STANDARD_ERROR = Path.of("/proc/self/fd/2");

  private final PrintStream err;
  private final boolean shown;
  private final boolean terminal;
  private int nRanks;
  private int rows;
  private int row;
  private long start;

  /**
   * Progress of a run.
   *
   * @param err takes the lines
   * @param wanted whether to show it; empty: if {@code err} is a terminal
   */
  Progress(PrintStream err, Optional<Boolean> wanted) {
    this.err = err;
    this.terminal = isTerminal(err);
    this.shown = wanted.orElse(terminal);
  }

  /** Returns whether anything is shown. */
  boolean isShown() {
    return shown;
  }

  /** Returns whether a stream is this process's stderr and that is a terminal. */
  static boolean isTerminal(PrintStream stream) {
    if (stream != System.err || !Files.isSymbolicLink(STANDARD_ERROR)) {
      return false;
    }
    try {
      String target = Files.readSymbolicLink(STANDARD_ERROR).toString();
      return target.startsWith("/dev/pts/") || target.startsWith("/dev/tty");
    } catch (IOException e) {
      return false; // stderr was closed
    }
  }

  /** Shows that the run warms up. */
  void started(int ranks, int cases) {
    nRanks = ranks;
    rows = cases;
    start = System.nanoTime();
    show("warming up");
  }

  /** Shows the next case. */
  void measuring(PerfCase next) {
    row++;
    show(
        Text.of(
            "%d of %d: %s, %d bytes; %d s so far",
            row,
            rows,
            next.collective().label(),
            next.bytes(nRanks),
            Duration.ofNanos(System.nanoTime() - start).toSeconds()));
  }

  /** Erases the line on a terminal. */
  void clear() {
    if (shown && terminal) {
      err.print(ERASE);
      err.flush();
    }
  }

  private void show(String text) {
    if (shown) {
      show(err, MARK + text, terminal);
    }
  }

  /** Shows a line; on a terminal the cursor returns to its beginning. */
  static void show(PrintStream err, String line, boolean terminal) {
    synchronized (err) {
      err.print(terminal ? ERASE + line + "\r" : line + "\n");
      err.flush();
    }
  }
}
