package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * stdout and stderr, to which lines go one at a time and each in one write: both may be one file,
 * to which others write too. A line that comes in pieces is one line, unless another rank's comes
 * between them. Thread-safe.
 */
final class SharedOutput {
  private static final int NONE = -1;

  private final Stream out;
  private final Stream err;

  SharedOutput(PrintStream out, PrintStream err) {
    this.out = new Stream(out);
    this.err = new Stream(err);
  }

  /**
   * Writes a line or a piece of one.
   *
   * @param rank whose
   * @param error whether to stderr
   * @param prefix what goes before a line, or before what is left of one that was interrupted
   * @param bytes without the end of line
   * @param ended whether the line ends here
   */
  synchronized void write(int rank, boolean error, String prefix, byte[] bytes, boolean ended) {
    (error ? err : out).write(rank, prefix, bytes, ended);
  }

  /** Writes a line to stderr that is no rank's. */
  synchronized void notice(String line) {
    err.write(NONE, "", line.getBytes(StandardCharsets.UTF_8), true);
  }

  /** Does something between two lines. */
  synchronized void between(Runnable something) {
    something.run();
  }

  private static final class Stream {
    private final PrintStream stream;

    /** Whose line has not ended yet. */
    private int open = NONE;

    Stream(PrintStream stream) {
      this.stream = stream;
    }

    void write(int rank, String prefix, byte[] bytes, boolean ended) {
      ByteArrayOutputStream whole = new ByteArrayOutputStream(prefix.length() + bytes.length + 2);
      if (open != NONE && open != rank) {
        whole.write('\n');
      }
      if (open == NONE || open != rank) {
        whole.writeBytes(prefix.getBytes(StandardCharsets.US_ASCII));
      }
      whole.writeBytes(bytes);
      if (ended) {
        whole.write('\n');
      }
      open = ended ? NONE : rank;
      stream.write(whole.toByteArray(), 0, whole.size());
      stream.flush();
    }
  }
}
