// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Writes what the ranks of a job print to this process's stdout and stderr. Both may be the same
 * file, so that lines are written one at a time and each in one write. A line that arrives in
 * pieces stays one line, unless a line of another rank arrives between them. Thread-safe.
 *
 * @param out this process's stdout
 * @param err this process's stderr
 * @param firstRankOnly whether to leave out what other ranks than 0 print to stdout
 * @param tagged whether each line begins with {@code [rank] }
 * @param verbatim whether a line without an end stays so
 * @param terminal whether stderr is a terminal
 */
record RankOutput(
    Stream out,
    Stream err,
    boolean firstRankOnly,
    boolean tagged,
    boolean verbatim,
    boolean terminal)
    implements LineForwarder.Sink {
  private static final int NONE = -1;

  /**
   * Returns an output of all lines, to the stream that each came from.
   *
   * @param tagged whether each line begins with {@code [rank] }
   * @param nRanks how many ranks there are; a lone one's bytes stay as they are, unless tagged
   */
  static RankOutput ofAllRanks(PrintStream out, PrintStream err, boolean tagged, int nRanks) {
    return new RankOutput(
        new Stream(out), new Stream(err), false, tagged, nRanks == 1 && !tagged, false);
  }

  /**
   * Returns an output of rank 0's lines, and of all ranks' errors with {@code [rank] } before each.
   * Rank 0's {@link Progress} stays progress: on a terminal, a line that is erased.
   */
  static RankOutput ofFirstRank(PrintStream out, PrintStream err) {
    return new RankOutput(
        new Stream(out), new Stream(err), true, false, false, Progress.isTerminal(err));
  }

  @Override
  public synchronized void line(int rank, boolean error, byte[] line, End end) {
    String tag = "[" + rank + "] ";
    boolean ended = end == End.LINE || end == End.STREAM && !verbatim;
    if (!firstRankOnly) {
      (error ? err : out).write(rank, tagged ? tag : "", line, ended);
      return;
    }
    String text = new String(line, StandardCharsets.UTF_8);
    if (error && rank == 0 && text.startsWith(Progress.MARK)) {
      Progress.show(err.stream, text, terminal);
    } else if (error) {
      err.write(rank, erase() + tag, line, ended);
    } else if (rank == 0) {
      err.stream.print(erase());
      out.write(rank, "", line, ended);
    }
  }

  @Override
  public synchronized void notice(String line) {
    err.write(NONE, "", (erase() + line).getBytes(StandardCharsets.UTF_8), true);
  }

  private String erase() {
    return terminal ? Progress.ERASE : "";
  }

  /** One stream of this process. */
  static final class Stream {
    private final PrintStream stream;

    /** The rank whose line has not ended yet. */
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
