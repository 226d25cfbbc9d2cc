package io.fluxccl.cli;

/** Takes the lines that ranks print. Thread-safe: each stream of each rank has a thread. */
interface OutputSink {
  /** What comes behind bytes that a sink takes. */
  enum End {
    /** The end of the line. */
    LINE,
    /** More of the line, which is long. */
    MORE,
    /** Nothing: the stream ends without an end of line. */
    STREAM
  }

  /**
   * Takes a line, or a piece of a long one.
   *
   * @param rank whose
   * @param error whether it came from stderr
   * @param line its bytes, in whatever charset, without the end of line
   * @param end what comes behind them
   */
  void line(int rank, boolean error, byte[] line, End end);

  /** Takes a line that is the launcher's own, for stderr. */
  void notice(String line);
}
