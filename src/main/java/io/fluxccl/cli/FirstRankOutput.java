package io.fluxccl.cli;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Passes on what rank 0 prints, and every rank's errors with {@code [rank] } before each line; but
 * for its progress, which on a terminal is a line that comes and goes.
 */
final class FirstRankOutput implements OutputSink {
  private final SharedOutput output;
  private final PrintStream err;
  private final boolean terminal;

  FirstRankOutput(PrintStream out, PrintStream err) {
    this.output = new SharedOutput(out, err);
    this.err = err;
    this.terminal = Progress.isTerminal(err);
  }

  @Override
  public void line(int rank, boolean error, byte[] line, End end) {
    String text = new String(line, StandardCharsets.UTF_8);
    if (error && rank == 0 && text.startsWith(Progress.MARK)) {
      output.between(() -> Progress.show(err, text, terminal));
    } else if (error) {
      output.write(rank, true, erase() + "[" + rank + "] ", line, end != End.MORE);
    } else if (rank == 0) {
      output.between(() -> err.print(erase()));
      output.write(rank, false, "", line, end != End.MORE);
    }
  }

  @Override
  public void notice(String line) {
    output.notice(erase() + line);
  }

  private String erase() {
    return terminal ? Progress.ERASE : "";
  }
}
