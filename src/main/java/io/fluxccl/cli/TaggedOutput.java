package io.fluxccl.cli;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Passes lines on to the stream they came from, with {@code [rank] } before each if wanted. */
final class TaggedOutput implements OutputSink {
  private final PrintStream out;
  private final PrintStream err;
  private final boolean tagged;

  TaggedOutput(PrintStream out, PrintStream err, boolean tagged) {
    this.out = out;
    this.err = err;
    this.tagged = tagged;
  }

  @Override
  public void line(int rank, boolean error, byte[] line) {
    write(error ? err : out, tagged ? "[" + rank + "] " : "", line);
  }

  @Override
  public void notice(String line) {
    write(err, "", line.getBytes(StandardCharsets.UTF_8));
  }

  static void write(PrintStream stream, String tag, byte[] line) {
    byte[] prefix = tag.getBytes(StandardCharsets.US_ASCII);
    synchronized (stream) {
      stream.write(prefix, 0, prefix.length);
      stream.write(line, 0, line.length);
      stream.write('\n');
      stream.flush();
    }
  }
}
