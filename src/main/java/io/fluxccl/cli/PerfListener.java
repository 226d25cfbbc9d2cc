package io.fluxccl.cli;

import java.util.List;
import java.util.Optional;

/** Learns how a run goes. Called from the thread of rank 0. */
interface PerfListener {
  /**
   * Before anything is measured.
   *
   * @param plan what will be
   * @param devices a line for each rank
   * @param peer the name of the library that this one is compared with
   */
  default void started(PerfPlan plan, List<String> devices, Optional<String> peer) {}

  /** A row is about to be measured. */
  default void measuring(PerfCase next) {}

  /** A row is ready. */
  default void measured(PerfRow row) {}

  /** The algorithms of a case were measured; the one to be taken is the first. */
  default void tuned(PerfCase shape, long bytes, List<TuningRun.AlgorithmTime> times) {}

  /** All rows were measured; {@code wrong} counts the wrong elements of all of them. */
  default void finished(long wrong) {}

  /** All of these, in this order. */
  static PerfListener of(List<PerfListener> listeners) {
    return new PerfListener() {
      @Override
      public void started(PerfPlan plan, List<String> devices, Optional<String> peer) {
        listeners.forEach(listener -> listener.started(plan, devices, peer));
      }

      @Override
      public void measuring(PerfCase next) {
        listeners.forEach(listener -> listener.measuring(next));
      }

      @Override
      public void measured(PerfRow row) {
        listeners.forEach(listener -> listener.measured(row));
      }

      @Override
      public void tuned(PerfCase shape, long bytes, List<TuningRun.AlgorithmTime> times) {
        listeners.forEach(listener -> listener.tuned(shape, bytes, times));
      }

      @Override
      public void finished(long wrong) {
        listeners.forEach(listener -> listener.finished(wrong));
      }
    };
  }
}
