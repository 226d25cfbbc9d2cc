package io.fluxccl.cli;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * Says what is being measured, on stderr. On a terminal the line is overwritten by what comes next;
 * elsewhere each is a line of its own, with a mark by which the process that started this one finds
 * it.
 */
final class Progress implements PerfListener {
  /** Begins a line of progress. */
  static final String MARK = "progress: ";

  /** Makes a terminal forget the line that the cursor is in. */
  static final String ERASE = "\u001b[2K";

  private static final Path STANDARD_ERROR = Path.of("/proc/self/fd/2");

  private final PrintStream err;
  private final boolean shown;
  private final boolean terminal;
  private final int rows;
  private int nRanks;
  private int row;
  private long start;

  /**
   * Progress of a run.
   *
   * @param err where to
   * @param wanted whether to show it; empty: if {@code err} is a terminal
   * @param plan what is measured
   */
  Progress(PrintStream err, Optional<Boolean> wanted, PerfPlan plan) {
    this.err = err;
    this.terminal = isTerminal(err);
    this.shown = wanted.orElse(terminal);
    this.rows = plan.cases().size();
  }

  /** Whether anything is shown. */
  boolean isShown() {
    return shown;
  }

  static boolean isTerminal(PrintStream stream) {
    if (stream != System.err || !Files.isSymbolicLink(STANDARD_ERROR)) {
      return false;
    }
    try {
      String target = Files.readSymbolicLink(STANDARD_ERROR).toString();
      return target.startsWith("/dev/pts/") || target.startsWith("/dev/tty");
    } catch (IOException e) {
      return false; // nobody sees it
    }
  }

  @Override
  public void started(PerfPlan plan, List<String> devices, Optional<String> peer) {
    nRanks = devices.size();
    start = System.nanoTime();
    tell("warming up");
  }

  @Override
  public void measuring(PerfCase next) {
    row++;
    tell(
        String.format(
            "%d of %d: %s, %d bytes; %d s so far",
            row,
            rows,
            next.collective().label(),
            next.bytes(nRanks),
            Duration.ofNanos(System.nanoTime() - start).toSeconds()));
  }

  @Override
  public void measured(PerfRow done) {
    clear();
  }

  @Override
  public void tuned(PerfCase shape, long bytes, List<TuningRun.AlgorithmTime> times) {
    clear();
  }

  private void clear() {
    if (shown && terminal) {
      err.print(ERASE);
      err.flush();
    }
  }

  private void tell(String text) {
    if (shown) {
      show(err, MARK + text, terminal);
    }
  }

  /** Shows a line; on a terminal the cursor goes back to its beginning. */
  static void show(PrintStream err, String line, boolean terminal) {
    synchronized (err) {
      err.print(terminal ? ERASE + line + "\r" : line + "\n");
      err.flush();
    }
  }
}
