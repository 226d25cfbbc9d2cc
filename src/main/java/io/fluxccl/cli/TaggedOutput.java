package io.fluxccl.cli;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Passes lines on to the stream they came from, with {@code [rank] } before each if wanted. */
final class TaggedOutput implements OutputSink {
  private final SharedOutput output;
  private final boolean tagged;

  TaggedOutput(PrintStream out, PrintStream err, boolean tagged) {
    this.output = new SharedOutput(out, err);
    this.tagged = tagged;
  }

  @Override
  public void line(int rank, boolean error, byte[] line) {
    output.write(error, tagged ? "[" + rank + "] " : "", line);
  }

  @Override
  public void notice(String line) {
    output.write(true, "", line.getBytes(StandardCharsets.UTF_8));
  }
}
