package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * stdout and stderr, to which lines go one at a time and each in one write: both may be one file,
 * to which others write too. Thread-safe.
 */
final class SharedOutput {
  private final PrintStream out;
  private final PrintStream err;

  SharedOutput(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /**
   * Writes a line.
   *
   * @param error whether to stderr
   * @param prefix what goes before it
   * @param line its bytes, without the end of line
   */
  synchronized void write(boolean error, String prefix, byte[] line) {
    ByteArrayOutputStream whole = new ByteArrayOutputStream(prefix.length() + line.length + 1);
    whole.writeBytes(prefix.getBytes(StandardCharsets.US_ASCII));
    whole.writeBytes(line);
    whole.write('\n');
    PrintStream stream = error ? err : out;
    stream.write(whole.toByteArray(), 0, whole.size());
    stream.flush();
  }

  /** Does something between two lines. */
  synchronized void between(Runnable something) {
    something.run();
  }
}
