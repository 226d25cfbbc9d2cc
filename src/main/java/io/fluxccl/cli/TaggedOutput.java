package io.fluxccl.cli;

import java.io.PrintStream;

/** Passes lines on to the stream they came from, with {@code [rank] } before each if wanted. */
final class TaggedOutput implements OutputSink {
  private final SharedOutput output;
  private final boolean tagged;
  private final boolean verbatim;

  /**
   * An output.
   *
   * @param nRanks how many ranks there are; a lone one's bytes come out as they are, unless tagged
   */
  TaggedOutput(PrintStream out, PrintStream err, boolean tagged, int nRanks) {
    this.output = new SharedOutput(out, err);
    this.tagged = tagged;
    this.verbatim = nRanks == 1 && !tagged;
  }

  @Override
  public void line(int rank, boolean error, byte[] line, End end) {
    boolean ended = end == End.LINE || end == End.STREAM && !verbatim;
    output.write(rank, error, tagged ? "[" + rank + "] " : "", line, ended);
  }

  @Override
  public void notice(String line) {
    output.notice(line);
  }
}
