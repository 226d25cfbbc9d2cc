package io.fluxccl.cli;

import java.io.PrintStream;

/** Passes on what rank 0 prints, and every rank's errors with {@code [rank] } before each line. */
final class FirstRankOutput implements OutputSink {
  private final PrintStream out;
  private final PrintStream err;

  FirstRankOutput(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  @Override
  public void line(int rank, boolean error, byte[] line) {
    if (error) {
      TaggedOutput.write(err, "[" + rank + "] ", line);
    } else if (rank == 0) {
      TaggedOutput.write(out, "", line);
    }
  }
}
