package io.fluxccl.cli;

/** Takes the lines that ranks print. Thread-safe: each stream of each rank has a thread. */
interface OutputSink {
  /**
   * Takes a line.
   *
   * @param rank whose
   * @param error whether it came from stderr
   * @param line its bytes, in whatever charset, without the end of line
   */
  void line(int rank, boolean error, byte[] line);

  /** Takes a line that is the launcher's own, for stderr. */
  void notice(String line);
}
