package io.fluxccl.cli;

/** Somebody who can do collectives: this library, or the one that it is compared with. */
interface PerfContender {
  /** For headers, for example {@code NCCL 2.28.9}. */
  String name();

  /** Whether it can do this. The same on every rank. */
  default boolean supports(PerfCase shape, Placement placement) {
    return true;
  }

  /**
   * Readies calls on the rank's buffers. On all ranks in the same order.
   *
   * @param shape what to do
   * @param placement on which buffers
   * @param length how many calls
   * @param graph whether to record them once and only replay them from then on
   * @return ready to run; the caller closes it
   */
  PerfWork prepare(PerfCase shape, Placement placement, int length, boolean graph);
}
